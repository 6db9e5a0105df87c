"""For operators: list parked rows and put them back to work; list blocked FIFO keys and skip a row."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import attrs

from sqlqueue.codec import Codec
from sqlqueue.connection import Connection
from sqlqueue.delivery import Delivery, Reader, decode_column, reader
from sqlqueue.errors import DeclarationError, DecodeError
from sqlqueue.queue_sql import QueueSQL, every
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.strategies.claim import Claim
from sqlqueue.strategies.fifo import ALL, MOST_SEEN, walk_parts
from sqlqueue.strategies.order import unleased
from sqlqueue.strategies.plan import Parameters

PARKED = """
SELECT {id}, {attempt}, {error}, {columns} FROM {table}
WHERE {conditions}
ORDER BY {id}
LIMIT :limit
"""

# The row is as if it had never been tried. Its place in the claim order stays.
REQUEUE = """
UPDATE {table}
SET {assigned}
{from_given}
WHERE {id} = {given_id} AND {conditions}
RETURNING {id}
"""

REQUEUE_ALL = """
UPDATE {table}
SET {assigned}
WHERE {conditions}
RETURNING {id}
"""

# The head of each key with what hides it, all read in one walk.
HIDDEN = """
SELECT {read_line} AS line, {id} AS id, {attempt} AS attempt, {until} AS until, taken, seen FROM _lines
JOIN {table} ON {id} = _lines.id
ORDER BY seen
"""

# The same as a final settlement, by hand. A row in work is left alone.
SKIP = """
UPDATE {table}
SET {assigned}
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

#: The error that a skipped row shows, where rows are parked.
SKIPPED = "skipped by Queue.skip()"


@attrs.frozen(kw_only=True)
class ParkedRow:
    """A row that nobody claims until it is put back.

    `key` and `group` are None where the table has no such column, `attempts` where it does not count; `error` is the
    text that it was parked with. `message` is what a handler would get, None where it cannot be read.
    """

    id: Any
    key: Any
    group: str | None
    attempts: int | None
    error: str
    message: Any


@attrs.frozen(kw_only=True)
class BlockedKey:
    """A FIFO key whose head waits for a later moment; all rows behind the head wait as well.

    `key` is the key, `id` the head's id, `attempt` its count (None where the table does not count), `until` when it is
    due (aware UTC).
    """

    key: Any
    id: Any
    attempt: int | None
    until: datetime | None


@attrs.frozen
class AsFound:
    """The id of a row as the driver returned it. Another program may have spelled it otherwise than we do."""

    id: Any


class Parking:
    """The parked rows of one queue; `DeclarationError` where its table has no column to park them in."""

    def __init__(self, sql: QueueSQL, *, queue: str, group: str | None) -> None:
        if not sql.spec.has(Role.ERROR):
            raise DeclarationError(
                f"queue {queue}: its table parks no rows; mark a column with column.error(), as in "
                "error: str | None = column.error()"
            )
        self._sql, self._queue, self._group = sql, queue, group

    def rows(
        self, connection: Connection, codec: Codec, *, kind: Any, cap: int | None, limit: int
    ) -> Sequence[ParkedRow]:
        """The first parked rows by id. `kind`: the type of their messages. `cap`: the most attempts of a row."""
        read = reader(self._sql.dialect, self._sql.spec, codec, kind)
        (rows,) = connection.run([Call(self.listing(read), {"group": self._group, "limit": limit})])
        return [self._shown(read, row, cap) for row in rows]

    def listing(self, read: Reader) -> Statement:
        sql = self._sql
        return sql.statement(
            "list the parked rows",
            PARKED,
            width=3 + len(read.columns),
            writes=False,
            attempt=sql.column(Role.ATTEMPT) if sql.spec.has(Role.ATTEMPT) else "NULL",
            error=sql.column(Role.ERROR),
            columns=", ".join(sql.dialect.read(column, sql.qualified(column)) for column in read.columns),
            conditions=self._conditions(),
        )

    def _shown(self, read: Reader, row: tuple[Any, ...], cap: int | None) -> ParkedRow:
        id, attempts, error, *values = row
        if attempts is not None and cap is not None:
            attempts = min(attempts, cap)  # a count beyond the cap tells a spent row from one whose worker was lost
        delivery = Delivery(self._queue, Claim(id, None, None, attempts, tuple(values)))
        try:
            message = read.read(delivery)
        except DecodeError:
            message = None
        return ParkedRow(
            id=id if delivery.id is None else delivery.id,
            key=delivery.key,
            group=delivery.group,
            attempts=attempts,
            error=error,
            message=message,
        )

    def requeue(self, ids: Any) -> Call:
        """The call that puts these rows, or all, back to work; it returns a row for each that was parked."""
        sql, column, dialect = self._sql, self._sql.spec.id, self._sql.dialect
        assigned, conditions = ", ".join(sql.assignments("requeue", first=Role.ERROR)), self._conditions()
        if ids is None:
            every_row = sql.statement("requeue all", REQUEUE_ALL, width=1, assigned=assigned, conditions=conditions)
            return Call(every_row, {"group": self._group})
        taken = [
            one.id if isinstance(one, ParkedRow | AsFound) else id_in(column, one, self._queue) for one in listed(ids)
        ]
        spelled = [one for id in taken for one in dialect.spellings(column, id)]
        statement = sql.settlement("requeue", REQUEUE, {"id": column}, assigned=assigned, conditions=conditions)
        return Call(statement, {"group": self._group, "id": spelled})

    def _conditions(self) -> str:
        sql = self._sql
        own = [f"{sql.column(Role.GROUP)} = :group"] if sql.grouped else []
        own += [f"{sql.column(Role.PROCESSED_AT)} IS NULL"] if sql.spec.has(Role.PROCESSED_AT) else []
        return every([*own, f"{sql.column(Role.ERROR)} IS NOT NULL"])


def id_in(column: ColumnSpec, given: Any, queue: str) -> Any:
    """An id as its column is declared; `ValueError` for one that cannot be of this table."""
    declared = column.type if isinstance(column.type, type) else object
    kind = next((kind for kind in Role.ID.fact.types if issubclass(declared, kind)), None)
    if kind is None or (isinstance(given, kind) and not isinstance(given, bool)):
        return given
    try:
        if kind is UUID and isinstance(given, str):
            return UUID(given)
    except ValueError:
        pass
    raise ValueError(
        f"queue {queue}: {given!r:.200} is no id of its rows, which is {kind.__name__}; give one, a row as it was "
        "shown, or a list of either"
    )


def listed(ids: Any) -> Sequence[Any]:
    """One id, or several, as a list of them."""
    return [ids] if isinstance(ids, str | bytes) or not isinstance(ids, Iterable) else list(ids)


def blocked_keys(connection: Connection, sql: QueueSQL, group: str | None) -> Iterator[BlockedKey]:
    """The blocked keys, in the order of the keys. A key whose head is in work is not blocked."""
    column = sql.spec.fifo_column
    if column is None:
        raise DeclarationError(
            f"table {sql.spec.full_name!r} has no FIFO lines that could be held up; mark its key or group with "
            "fifo=True"
        )
    hides = Role.RETRY_AFTER if sql.spec.has(Role.RETRY_AFTER) else Role.LEASE
    hiding = sql.spec.role(hides)
    if hiding is None:  # under a row lock nothing hides a row
        return
    statement = _hidden(sql, column, hiding)
    values = Parameters(sql, group=group, cap=None).values(sql.spec.host_clock.now())
    read_key, read_id = sql.dialect.decoder(column), sql.dialect.decoder(sql.spec.id)
    read_until = sql.decoder(hides)
    last, seen = None, set()
    while True:
        (rows,) = connection.run([Call(statement, {**values, "from_line": last})])
        for key, id, attempt, until, due, _ in rows:
            if key in seen:
                return
            seen.add(key)
            if not due:
                yield BlockedKey(
                    key=_if_readable(read_key, column, key),
                    id=_if_readable(read_id, sql.spec.id, id),
                    attempt=attempt,
                    until=read_until(until),
                )
        if len(rows) < MOST_SEEN:
            return
        last = rows[-1][0]


def _if_readable(decode: Any, column: ColumnSpec, value: Any) -> Any:
    """A value; as the driver returned it, where it cannot be read."""
    try:
        return decode_column(decode, column, value)
    except DecodeError:
        return value


def _hidden(sql: QueueSQL, column: ColumnSpec, hiding: ColumnSpec) -> Statement:
    parts = walk_parts(sql, [] if hiding.role is Role.RETRY_AFTER else [unleased(sql)], limit=ALL)
    select = fill(
        HIDDEN,
        {
            **parts,
            "read_line": sql.dialect.read(column, "_lines.line"),
            "attempt": sql.column(Role.ATTEMPT) if sql.spec.has(Role.ATTEMPT) else "NULL",
            "until": sql.dialect.read(hiding, sql.qualified(hiding)),
        },
    )
    walk = sql.dialect.walk_heads({**parts, "select": select}, "")
    return sql.statement("list the held-up lines", "{walk}", width=6, writes=False, walk=walk)


def skip(connection: Connection, sql: QueueSQL, group: str | None, id: Any) -> bool:
    """Finish or park a row that nobody works on; whether there was one."""
    spec, dialect = sql.spec, sql.dialect
    if spec.advisory_lock is not None:
        raise DeclarationError(
            f"table {spec.full_name!r}: its rows are held by locks that no statement sees, so none can be skipped; "
            "delete the row, or set its error column, while no consumer runs"
        )
    encode = dialect.encoder(spec.id)
    values = Parameters(sql, group=group, cap=None).values(sql.spec.host_clock.now())
    values |= {"id": id if encode is None else encode(id), "error": SKIPPED}
    (rows,) = connection.run([Call(_skip(sql), values)])
    return bool(rows)


def _skip(sql: QueueSQL) -> Statement:
    conditions = [*sql.unfinished(), *([unleased(sql)] if sql.spec.has(Role.LEASE) else [])]
    names = {
        "table": sql.dialect.table(sql.spec),
        "id": sql.column(Role.ID),
        "conditions": every(conditions or ["TRUE"]),
        "skip_locked": sql.dialect.skip_locked,
    }
    assigned = sql.assignments("park", values={"given_error": ":error"}) or sql.assignments("finish")
    template = SKIP if assigned else SKIP_BY_DELETE
    return sql.statement("skip", template, width=1, free=fill(FREE, names), assigned=", ".join(assigned))
