"""Every portable statement but the claims: inserting and settling.

A statement that settles rows takes them as `given` columns, so that one execution settles as many rows as the call
holds; it returns the ids of the rows that it changed. Whoever is missing there was fenced out. No table has an
alias: SQLite's RETURNING does not know it.
"""

from collections.abc import Mapping, Sequence

import attrs

from sqlqueue.column import Role
from sqlqueue.dialect import Dialect
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Statement, fill
from sqlqueue.words import Words, also, every

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

# Back to work, hidden until `due`. The attempt was counted by the claim.
RETRY = """
UPDATE {table}
SET {retry_after} = {given_due}{let_go}
{from_given}
WHERE {id} = {given_id} {fence}
RETURNING {id}
"""

# Without a column for that, the lease hides the row: nobody holds it, and nobody claims it before it ends.
RETRY_BY_LEASE = """
UPDATE {table}
SET {lease} = {given_due}{not_running}
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
SET {lease} = {given_until}{uncounted}{not_running}
{from_given}
WHERE {id} = {given_id} {fence}
RETURNING {id}
"""

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

    return Words(dialect, spec, grouped=False).statement(
        "insert",
        INSERT if returning else INSERT_ONLY,
        width=1 if returning else 0,
        columns=", ".join(dialect.quote(column.name) for column in columns),
        values=", ".join(value(column) for column in columns),
        on_conflict="ON CONFLICT DO NOTHING" if ignore else "",
    )


@attrs.frozen
class Settlements:
    """The statements that settle rows held by lease, for one queue."""

    finish: Statement
    retry: Statement
    park: Statement | None
    release: Statement

    @classmethod
    def by_lease(cls, words: Words) -> "Settlements":
        id, lease = words.spec.id, words.spec.role(Role.LEASE)
        assert lease is not None
        held = {"id": id, "token": lease}
        return cls(
            finish=_finish(words, held),
            retry=_retry(words, held, lease),
            park=_park(words, held),
            release=words.settlement(
                "release",
                RELEASE,
                {**held, "until": lease},
                lease=words.bare(Role.LEASE),
                uncounted=also(_uncounted(words)),
                not_running=also(words.not_running()),
            ),
        )


def _finish(words: Words, held: Mapping[str, ColumnSpec]) -> Statement:
    if not words.spec.has(Role.PROCESSED_AT):
        return words.settlement("acknowledge", FINISH_BY_DELETE, held)
    return words.settlement(
        "acknowledge",
        FINISH_BY_MARK,
        held,
        processed_at=words.bare(Role.PROCESSED_AT),
        now=words.now(Role.PROCESSED_AT),
        let_go=also(words.let_go()),
    )


def _retry(words: Words, held: Mapping[str, ColumnSpec], lease: ColumnSpec) -> Statement:
    due = words.spec.role(Role.RETRY_AFTER)
    if due is None:
        return words.settlement(
            "retry",
            RETRY_BY_LEASE,
            {**held, "due": lease},
            lease=words.bare(Role.LEASE),
            not_running=also(words.not_running()),
        )
    return words.settlement(
        "retry",
        RETRY,
        {**held, "due": due},
        retry_after=words.bare(Role.RETRY_AFTER),
        let_go=also(words.let_go()),
    )


def _park(words: Words, held: Mapping[str, ColumnSpec]) -> Statement | None:
    error = words.spec.role(Role.ERROR)
    if error is None:
        return None
    return words.settlement(
        "park", PARK, {**held, "error": error}, error=words.bare(Role.ERROR), let_go=also(words.let_go())
    )


def _uncounted(words: Words) -> list[str]:
    if not words.spec.has(Role.ATTEMPT):
        return []
    return [f"{words.bare(Role.ATTEMPT)} = {words.column(Role.ATTEMPT)} - 1"]


def unfinished(words: Words) -> Statement:
    return words.statement("is it unfinished", UNFINISHED, width=1, writes=False, unfinished=every(words.unfinished()))


def present(words: Words) -> Statement:
    return words.statement("is it gone", PRESENT, width=1, writes=False)
