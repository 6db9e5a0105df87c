"""For operators: the FIFO lines that are held up, and a row taken out of its line so that those behind it go on."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import attrs

from sqlqueue.column import Role
from sqlqueue.connection import Connection
from sqlqueue.dialect import Converter
from sqlqueue.errors import DeclarationError, DecodeError
from sqlqueue.rows import decode_column
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.strategies.binding import Binding
from sqlqueue.strategies.fronts import ALL, MOST_SEEN, line_parts
from sqlqueue.strategies.waiting import unleased
from sqlqueue.words import Words, every

# The fronts with what hides them, a row for each line of one walk.
HIDDEN = """
SELECT {read_line} AS line, {id} AS id, {attempt} AS attempt, {until} AS until, taken, seen FROM _lines
JOIN {table} ON {id} = _lines.id
ORDER BY seen
"""

# As a settlement for good would, but by hand; not while somebody works on it.
SKIP_BY_PARKING = """
UPDATE {table}
SET {error} = :error
WHERE {id} IN (
    {free}
)
RETURNING {id}
"""

SKIP_BY_MARK = """
UPDATE {table}
SET {processed_at} = {now}
WHERE {id} IN (
    {free}
)
RETURNING {id}
"""

SKIP_BY_DELETE = """
DELETE FROM {table}
WHERE {id} IN (
    {free}
)
RETURNING {id}
"""

FREE = """
SELECT {id} FROM {table}
WHERE {id} = :id AND {conditions}
{skip_locked}
"""

#: What a skipped row shows where rows are parked.
SKIPPED = "skipped by Queue.skip()"


@attrs.frozen(kw_only=True)
class BlockedKey:
    """A FIFO line whose front waits for a later moment, and with it all rows behind it.

    `key` is the line's, `id` the front's, `attempt` its count (None where the table does not count), `until` when it is
    due again (aware UTC).
    """

    key: Any
    id: Any
    attempt: int | None
    until: datetime | None


def blocked_keys(connection: Connection, words: Words, group: str | None) -> Iterator[BlockedKey]:
    """The lines that are held up, in the order of the lines; a front that is in work holds up nobody."""
    column = words.spec.line
    if column is None:
        raise DeclarationError(
            f"table {words.spec.full_name!r} has no FIFO lines that could be held up; mark its key or group with "
            "fifo=True"
        )
    hides = Role.RETRY_AFTER if words.spec.has(Role.RETRY_AFTER) else Role.LEASE
    hiding = words.spec.role(hides)
    if hiding is None:  # under a row lock nothing hides a row
        return
    statement = _hidden(words, hides)
    values = Binding(words, group=group, cap=None).values(words.spec.host_clock.now())
    read_key, read_id = words.dialect.decoder(column), words.dialect.decoder(words.spec.id)
    read_until = words.decoder(hides)
    last, told = None, set()
    while True:
        (rows,) = connection.run([Call(statement, {**values, "from_line": last})])
        for line, id, attempt, until, due, _ in rows:
            if line in told:
                return
            told.add(line)
            if not due:
                key, shown = _read(read_key, column, line), _read(read_id, words.spec.id, id)
                yield BlockedKey(key=key, id=shown, attempt=attempt, until=read_until(until))
        if len(rows) < MOST_SEEN:
            return
        last = rows[-1][0]


def _read(decode: Converter | None, column: ColumnSpec, value: Any) -> Any:
    """A value; as the driver returned it, where it cannot be read."""
    try:
        return decode_column(decode, column, value)
    except DecodeError:
        return value


def _hidden(words: Words, hides: Role) -> Statement:
    column, hiding = words.spec.line, words.spec.role(hides)
    assert column is not None
    assert hiding is not None
    parts = line_parts(words, [] if hides is Role.RETRY_AFTER else [unleased(words)], limit=ALL)
    select = fill(
        HIDDEN,
        {
            **parts,
            "read_line": words.dialect.read(column, "_lines.line"),
            "attempt": words.column(Role.ATTEMPT) if words.spec.has(Role.ATTEMPT) else "NULL",
            "until": words.dialect.read(hiding, words.qualified(hiding)),
        },
    )
    walk = words.dialect.walk_lines({**parts, "select": select}, "")
    return words.statement("list the held-up lines", "{walk}", width=6, writes=False, walk=walk)


def skip(connection: Connection, words: Words, group: str | None, id: Any) -> bool:
    """Finish or park a row that nobody works on; whether there was one."""
    spec, dialect = words.spec, words.dialect
    if spec.advisory_lock is not None:
        raise DeclarationError(
            f"table {spec.full_name!r}: its rows are held by locks that no statement sees, so none can be skipped; "
            "delete the row, or set its error column, while no consumer runs"
        )
    encode = dialect.encoder(spec.id)
    values = Binding(words, group=group, cap=None).values(words.spec.host_clock.now())
    values |= {"id": id if encode is None else encode(id), "error": SKIPPED}
    (rows,) = connection.run([Call(_skip(words), values)])
    return bool(rows)


def _skip(words: Words) -> Statement:
    spec = words.spec
    parked, marked = spec.has(Role.ERROR), spec.has(Role.PROCESSED_AT)
    conditions = [*words.unfinished(), *([unleased(words)] if spec.has(Role.LEASE) else [])]
    names = {
        "table": words.dialect.table(spec),
        "id": words.column(Role.ID),
        "conditions": every(conditions or ["TRUE"]),
        "skip_locked": words.dialect.skip_locked,
    }
    return words.statement(
        "skip",
        SKIP_BY_PARKING if parked else SKIP_BY_MARK if marked else SKIP_BY_DELETE,
        width=1,
        free=fill(FREE, names),
        error=words.bare(Role.ERROR) if parked else "",
        processed_at=words.bare(Role.PROCESSED_AT) if marked else "",
        now=words.now(Role.PROCESSED_AT) if marked else "",
    )
