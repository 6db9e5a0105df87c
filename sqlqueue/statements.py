"""The statements that insert and settle rows. The claims stand with their strategies.

A settlement takes its rows as `given` columns, so that one execution settles all rows of a call. It returns the ids of
the rows that it changed. A row whose id is missing was fenced out: somebody else holds it, or it is gone. No table has
an alias: SQLite's RETURNING does not know aliases.

What every settlement writes differs by strategy: it ends the lease, counts the attempt, or writes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from sqlqueue.clock import DatabaseClock
from sqlqueue.dialect import Dialect
from sqlqueue.queue_sql import NO_VALUES, QueueSQL, every
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Statement, fill

INSERT = """
INSERT INTO {table} ({columns})
VALUES ({values})
{on_conflict}
RETURNING {id}
"""

# By the database's clock: the row's own moment, else so many seconds from now.
DUE = "COALESCE({due}, {later})"

# For many rows at a time, whose ids nobody asks for.
INSERT_ONLY = """
INSERT INTO {table} ({columns})
VALUES ({values})
"""

# An acknowledgement deletes the row, where the table has no column to keep it with the time.
DELETE = """
DELETE FROM {table}
{using_given}
WHERE {id} = {given_id} {fence}
RETURNING {id}
"""

# Every other settlement keeps the row. What it writes into which column stands in the facts of `roles.py`:
# an acknowledgement writes the time, and the row stays finished;
# a retry hides the row until it is due, where the table has a column for that;
# an advance writes the next step of a task, which has not been tried yet;
# a park writes the error's text, and the row stays out of work until somebody clears it, with its attempts for people
# to see;
# a release gives the row back unhandled, its attempt too, as if it had never been claimed; a row that must wait behind
# another of its key stays hidden by its lease and keeps its place in the claim order;
# a dead letter that stays in its table gets another group and begins anew.
SETTLE = """
UPDATE {table}
SET {assigned}
{from_given}
WHERE {id} = {given_id} {fence}
RETURNING {id}
"""

MARK_SPENT = "CASE WHEN {counted} >= :cap THEN :cap + 2 ELSE {counted} END"

#: A delay where the database's clock says from when it counts.
SECONDS = ColumnSpec(field="seconds", type=float)

# The settlement of a row changed nothing: the row is lost where it is still there, else it is gone.
PRESENT = """
SELECT {id} FROM {table}
WHERE {id} = :id
"""

UNFINISHED = """
SELECT {id} FROM {table}
WHERE {id} = :id AND {unfinished}
"""


def insert(
    dialect: Dialect,
    spec: TableSpec,
    columns: Sequence[ColumnSpec],
    *,
    returning: bool = True,
    ignore: bool = False,
    delay: str | None = None,
) -> Statement:
    """The insert of one row with these columns; its values are named by field.

    `ignore`: a row that meets a unique index is left out, and no id is returned. `delay`: the name of one more value,
    the seconds from the database's *now* until a row is due that names no moment.
    """

    def value(column: ColumnSpec) -> str:
        bound = f":{column.field}"
        if delay is None or column.role is not Role.RETRY_AFTER:
            return bound
        return fill(DUE, {"due": bound, "later": dialect.later(column, f":{delay}")})

    return QueueSQL(dialect, spec, grouped=False).statement(
        "insert",
        INSERT if returning else INSERT_ONLY,
        width=1 if returning else 0,
        columns=", ".join(dialect.quote(column.name) for column in columns),
        values=", ".join(value(column) for column in columns),
        on_conflict="ON CONFLICT DO NOTHING" if ignore else "",
    )


@attrs.frozen
class Settlements:
    """The statements that settle one queue's rows. None: the move writes nothing, or the table has no column for it.
    `singly`: each settles one row, which costs the server a quarter less than a list of one."""

    finish: Statement
    retry: Statement | None
    park: Statement | None
    release: Statement | None
    advance: Statement | None = None
    singly: bool = False


def by_lease(sql: QueueSQL) -> Settlements:
    """The lease fences each settlement, and each settlement ends the lease. The claim counted the attempt."""
    lease = sql.spec.role(Role.LEASE)
    assert lease is not None
    held = {"id": sql.spec.id, "token": lease}
    return Settlements(
        finish=finish(sql, held),
        retry=retry(sql, held, hides=None if sql.spec.has(Role.RETRY_AFTER) else lease),
        park=park(sql, held),
        release=release(sql, {**held, "until": lease}),
    )


def by_row_lock(sql: QueueSQL, *, singly: bool = True) -> Settlements:
    """The row's lock fences each settlement. It ends with the transaction, so a release needs no statement. The
    settlement counts the attempt."""
    attempt = sql.spec.role(Role.ATTEMPT)
    held = {"id": sql.spec.id, **({"attempt": attempt} if attempt else {})}
    return Settlements(
        finish=finish(sql, held, base="settle_locked", singly=singly),
        retry=retry(sql, held, base="settle_locked", singly=singly),
        park=park(sql, held, base="settle_locked", singly=singly),
        release=None,
        singly=singly,
    )


def by_advisory_lock(sql: QueueSQL, *, capped: bool, singly: bool = True) -> Settlements:
    """The lock on the row's key fences each settlement, and is released after it. The claim counted the attempt.

    A parked row whose attempts are spent shows two more than the cap. Once its error is cleared, that tells it from a
    row whose last worker was lost.
    """
    held = {"id": sql.spec.id}
    marked: dict[Role, str] = {}
    if capped:
        marked[Role.ATTEMPT] = fill(MARK_SPENT, {"counted": sql.column(Role.ATTEMPT)})
    return Settlements(
        finish=finish(sql, held, singly=singly),
        retry=retry(sql, held, singly=singly),
        park=park(sql, held, instead=marked, singly=singly),
        release=release(sql, held, singly=singly),
        singly=singly,
    )


def settle(
    sql: QueueSQL,
    move: str,
    given: Mapping[str, ColumnSpec],
    *,
    name: str = "",
    base: str = "settle",
    first: Role | None = None,
    instead: Mapping[Role, str] = NO_VALUES,
    beside: Sequence[str] = (),
    singly: bool = False,
    values: Mapping[str, str] = NO_VALUES,
) -> Statement | None:
    """The statement of a settlement that keeps the row; None where it would write nothing.

    `move` and `base` are fields of `roles.Writes`: what this settlement writes, and what every settlement of this
    strategy writes beside it. `beside`: further assignments. The other arguments are those of `QueueSQL.assignments`.
    """
    texts = {f"given_{key}": sql.given(key, singly=singly) for key in given}
    assigned = [*sql.assignments(move, base, first=first, instead=instead, values={**texts, **values}), *beside]
    if not assigned:
        return None
    return sql.settlement(name or move, SETTLE, given, singly=singly, assigned=", ".join(assigned))


def finish(sql: QueueSQL, held: Mapping[str, ColumnSpec], **options: Any) -> Statement:
    """An acknowledgement. `options` here and below: those of `settle`."""
    if sql.spec.has(Role.PROCESSED_AT):
        kept = settle(sql, "finish", held, name="acknowledge", first=Role.PROCESSED_AT, **options)
        assert kept is not None
        return kept
    given = {name: column for name, column in held.items() if name != "attempt"}
    return sql.settlement("acknowledge", DELETE, given, singly=options.get("singly", False))


def retry(
    sql: QueueSQL, held: Mapping[str, ColumnSpec], *, hides: ColumnSpec | None = None, **options: Any
) -> Statement | None:
    """`hides`: the lease, where it hides the row for want of a column that does."""
    column = sql.spec.role(Role.RETRY_AFTER) or hides
    if column is None:
        return settle(sql, "retry", held, **options)
    by_database = isinstance(sql.spec.clock, DatabaseClock)
    given = {**held, "seconds": SECONDS} if by_database else {**held, "due": column}
    due = sql.given("seconds" if by_database else "due", singly=options.get("singly", False))
    due = sql.dialect.later(column, due) if by_database else due
    if hides:
        options = {**options, "instead": {Role.LEASE: due}}
    return settle(sql, "retry", given, values={"due": due}, **options)


def park(sql: QueueSQL, held: Mapping[str, ColumnSpec], **options: Any) -> Statement | None:
    error = sql.spec.role(Role.ERROR)
    return settle(sql, "park", {**held, "error": error}, first=Role.ERROR, **options) if error else None


def release(sql: QueueSQL, given: Mapping[str, ColumnSpec], **options: Any) -> Statement | None:
    """By lease, the lease ends or hides the row, as `until` in `given` says."""
    return settle(sql, "release", given, first=Role.LEASE, **options)


def unfinished(sql: QueueSQL) -> Statement:
    return sql.statement("is it unfinished", UNFINISHED, width=1, writes=False, unfinished=every(sql.unfinished()))


def present(sql: QueueSQL) -> Statement:
    return sql.statement("is it gone", PRESENT, width=1, writes=False)
