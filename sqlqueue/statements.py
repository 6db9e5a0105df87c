"""Every portable statement but the claims: inserting and settling.

What a settlement assigns beside its move differs by strategy: the lease is ended, the attempt counted, or nothing.

A statement that settles rows takes them as `given` columns, so that one execution settles as many rows as the call
holds; it returns the ids of the rows that it changed. Whoever is missing there was fenced out. No table has an
alias: SQLite's RETURNING does not know it.
"""

from collections.abc import Mapping, Sequence

import attrs

from sqlqueue.clock import DatabaseClock
from sqlqueue.dialect import Dialect
from sqlqueue.queue_sql import QueueSQL, also, every
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Statement, fill

INSERT = """
INSERT INTO {table} ({columns})
VALUES ({values})
{on_conflict}
RETURNING {id}
"""

# By the database's clock: a row's own moment, else so long from now.
DUE = "COALESCE({due}, {later})"

# For many rows at a time; nobody asks for their ids.
INSERT_ONLY = """
INSERT INTO {table} ({columns})
VALUES ({values})
"""

# An acknowledgement deletes the row …
FINISH_BY_DELETE = """
DELETE FROM {table}
{using_given}
WHERE {id} = {given_id} {fence}
RETURNING {id}
"""

# … or keeps it, with the time, where the table has a column for that.
FINISH_BY_MARK = """
UPDATE {table}
SET {processed_at} = {now}{let_go}
{from_given}
WHERE {id} = {given_id} {fence}
RETURNING {id}
"""

# Back to work, hidden until `due`.
RETRY = """
UPDATE {table}
SET {hidden_until} = {due}{let_go}
{from_given}
WHERE {id} = {given_id} {fence}
RETURNING {id}
"""

# Without a column for that, and without a lease to hide it, the row is due at once.
RETRY_AT_ONCE = """
UPDATE {table}
SET {let_go}
{from_given}
WHERE {id} = {given_id} {fence}
RETURNING {id}
"""

# On to what is to be done next with the row, which has not been tried yet.
ADVANCE = """
UPDATE {table}
SET {payload} = {stored}, {retry_after} = {given_due}, {attempt} = 0{let_go}
{from_given}
WHERE {id} = {given_id} {fence}
RETURNING {id}
"""

# Out of work with the error's text, until somebody clears it. The attempts stay for people to see.
PARK = """
UPDATE {table}
SET {error} = {given_error}{let_go}
{from_given}
WHERE {id} = {given_id} {fence}
RETURNING {id}
"""

# Given back on purpose and unhandled, its attempt too: as if it had never been claimed. A row that must wait behind
# another of its key stays hidden `until` then, by its lease, and keeps its place in the claim order.
RELEASE = """
UPDATE {table}
SET {given_back}
{from_given}
WHERE {id} = {given_id} {fence}
RETURNING {id}
"""

MARK_SPENT = "{attempt} = CASE WHEN {counted} >= :cap THEN :cap + 2 ELSE {counted} END"

#: How a delay is given where the database's clock says from when.
SECONDS = ColumnSpec(field="seconds", type=float)

# Which of the rows whose settlement changed nothing are still there: the others are gone, not lost.
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
    """The statements that settle one queue's rows. None: that move writes nothing, or the table has no place for it.
    `singly`: each settles one row, which costs the server a quarter less than a list of one."""

    finish: Statement
    retry: Statement | None
    park: Statement | None
    release: Statement | None
    advance: Statement | None = None
    singly: bool = False


def by_lease(sql: QueueSQL) -> Settlements:
    """Fenced by the lease, which each of them ends. The claim counted the attempt."""
    lease = sql.spec.role(Role.LEASE)
    assert lease is not None
    held = {"id": sql.spec.id, "token": lease}
    let_go = [f"{sql.bare(Role.LEASE)} = NULL", *sql.not_running()]
    hides = None if sql.spec.has(Role.RETRY_AFTER) else lease
    return Settlements(
        finish=finish(sql, held, let_go),
        retry=retry(sql, held, sql.not_running() if hides else let_go, hides),
        park=park(sql, held, let_go),
        release=give_back(sql, {**held, "until": lease}, sql.not_running()),
    )


def by_row_lock(sql: QueueSQL, *, singly: bool = True) -> Settlements:
    """Fenced by the lock, which ends with the transaction, and so does a release. The settlement counts the attempt."""
    attempt = sql.spec.role(Role.ATTEMPT)
    held = {"id": sql.spec.id, **({"attempt": attempt} if attempt else {})}
    counted = [f"{sql.bare(Role.ATTEMPT)} = {sql.given('attempt', singly=singly)}"] if attempt else []
    return Settlements(
        finish=finish(sql, held, counted, singly=singly),
        retry=retry(sql, held, counted, None, singly=singly),
        park=park(sql, held, counted, singly=singly),
        release=None,
        singly=singly,
    )


def by_advisory_lock(sql: QueueSQL, *, capped: bool, singly: bool = True) -> Settlements:
    """Fenced by the lock on the row's key, which is released behind the settlement. The claim counted the attempt.

    A parked row whose attempts are spent shows two more than the cap, which tells it, once its error is cleared, from a
    row whose last worker was lost.
    """
    held = {"id": sql.spec.id}
    given_back = [*_uncounted(sql), *sql.not_running()]
    return Settlements(
        finish=finish(sql, held, sql.not_running(), singly=singly),
        retry=retry(sql, held, sql.not_running(), None, singly=singly),
        park=park(sql, held, [*(_marked(sql) if capped else []), *sql.not_running()], singly=singly),
        release=sql.settlement("release", RELEASE, held, singly=singly, given_back=", ".join(given_back))
        if given_back
        else None,
        singly=singly,
    )


def finish(sql: QueueSQL, held: Mapping[str, ColumnSpec], let_go: Sequence[str], *, singly: bool = False) -> Statement:
    if not sql.spec.has(Role.PROCESSED_AT):
        given = {name: column for name, column in held.items() if name != "attempt"}
        return sql.settlement("acknowledge", FINISH_BY_DELETE, given, singly=singly)
    return sql.settlement(
        "acknowledge",
        FINISH_BY_MARK,
        held,
        singly=singly,
        processed_at=sql.bare(Role.PROCESSED_AT),
        now=sql.now(Role.PROCESSED_AT),
        let_go=also(let_go),
    )


def retry(
    sql: QueueSQL,
    held: Mapping[str, ColumnSpec],
    let_go: Sequence[str],
    hides: ColumnSpec | None,
    *,
    singly: bool = False,
) -> Statement | None:
    """`hides`: the lease, where it hides the row for want of a column that does."""
    column = sql.spec.role(Role.RETRY_AFTER) or hides
    if column is None:
        let = ", ".join(let_go)
        return sql.settlement("retry", RETRY_AT_ONCE, held, singly=singly, let_go=let) if let_go else None
    by_database = isinstance(sql.spec.clock, DatabaseClock)
    given = {**held, "seconds": SECONDS} if by_database else {**held, "due": column}
    due = sql.given("seconds" if by_database else "due", singly=singly)
    return sql.settlement(
        "retry",
        RETRY,
        given,
        singly=singly,
        hidden_until=sql.dialect.quote(column.name),
        due=sql.dialect.later(column, due) if by_database else due,
        let_go=also(let_go),
    )


def give_back(sql: QueueSQL, given: Mapping[str, ColumnSpec], let_go: Sequence[str]) -> Statement:
    """A release whose lease ends, or hides the row, as `until` says."""
    until = f"{sql.bare(Role.LEASE)} = {sql.given('until')}"
    return sql.settlement("release", RELEASE, given, given_back=", ".join([until, *_uncounted(sql), *let_go]))


def park(
    sql: QueueSQL, held: Mapping[str, ColumnSpec], let_go: Sequence[str], *, singly: bool = False
) -> Statement | None:
    error = sql.spec.role(Role.ERROR)
    if error is None:
        return None
    given = {**held, "error": error}
    return sql.settlement("park", PARK, given, singly=singly, error=sql.bare(Role.ERROR), let_go=also(let_go))


def _marked(sql: QueueSQL) -> list[str]:
    return [fill(MARK_SPENT, {"attempt": sql.bare(Role.ATTEMPT), "counted": sql.column(Role.ATTEMPT)})]


def _uncounted(sql: QueueSQL) -> list[str]:
    if not sql.spec.has(Role.ATTEMPT):
        return []
    return [f"{sql.bare(Role.ATTEMPT)} = {sql.column(Role.ATTEMPT)} - 1"]


def unfinished(sql: QueueSQL) -> Statement:
    return sql.statement("is it unfinished", UNFINISHED, width=1, writes=False, unfinished=every(sql.unfinished()))


def present(sql: QueueSQL) -> Statement:
    return sql.statement("is it gone", PRESENT, width=1, writes=False)
