"""For operators: the rows that were parked, and how they are put back to work.

For operators: the FIFO lines that are held up, and a row taken out of its line so that those behind it go on.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import attrs

from sqlqueue.codec import Codec
from sqlqueue.connection import Connection
from sqlqueue.delivery import Delivery, Reader, decode_column, reader
from sqlqueue.destination import Destination
from sqlqueue.dialect import Converter
from sqlqueue.errors import DeclarationError, DecodeError
from sqlqueue.handler import Handler, whole
from sqlqueue.queue_sql import QueueSQL, also, every
from sqlqueue.roles import ROLE_TYPES, Role
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.strategies.claim import Claim
from sqlqueue.strategies.fifo import ALL, MOST_SEEN, line_parts
from sqlqueue.strategies.order import unleased
from sqlqueue.strategies.plan import Parameters

if TYPE_CHECKING:
    from sqlqueue.broker import Broker

log = logging.getLogger("sqlqueue")


PARKED = """
SELECT {id}, {attempt}, {error}, {columns} FROM {table}
WHERE {conditions}
ORDER BY {id}
LIMIT :limit
"""

# As if it had never been tried. Where it stands in the claim order stays as it was.
REQUEUE = """
UPDATE {table}
SET {error} = NULL{afresh}
{from_given}
WHERE {id} = {given_id} AND {conditions}
RETURNING {id}
"""

REQUEUE_ALL = """
UPDATE {table}
SET {error} = NULL{afresh}
WHERE {conditions}
RETURNING {id}
"""


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


@attrs.frozen
class AsFound:
    """The id of a row as the driver returned it, which may be spelled as no id of ours is."""

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

    # -- looking ----------------------------------------------------------------------------------------------

    def rows(
        self, connection: Connection, codec: Codec, *, kind: Any, cap: int | None, limit: int
    ) -> Sequence[ParkedRow]:
        """The first parked rows by id; `kind` is the type of their messages, `cap` the most attempts of a row."""
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

    # -- putting back -----------------------------------------------------------------------------------------

    def requeue(self, ids: Any) -> Call:
        """The call that puts these rows, or all, back to work; it returns a row for each that was parked."""
        values: dict[str, Any] = {"group": self._group}
        if ids is None:
            return Call(self._requeue_all(), values)
        column, dialect = self._sql.spec.id, self._sql.dialect
        taken = [
            one.id if isinstance(one, ParkedRow | AsFound) else id_in(column, one, self._queue) for one in listed(ids)
        ]
        return Call(self._requeue(), {**values, "id": [one for id in taken for one in dialect.spellings(column, id)]})

    def _requeue(self) -> Statement:
        sql = self._sql
        return sql.settlement("requeue", REQUEUE, {"id": sql.spec.id}, singly=False, **self._shape())

    def _requeue_all(self) -> Statement:
        return self._sql.statement("requeue all", REQUEUE_ALL, width=1, writes=True, **self._shape())

    def _shape(self) -> dict[str, str]:
        sql = self._sql
        afresh = [f"{sql.bare(Role.ATTEMPT)} = 0"] if sql.spec.has(Role.ATTEMPT) else []
        afresh += [f"{sql.bare(Role.LEASE)} = NULL"] if sql.spec.has(Role.LEASE) else []
        return {
            "error": sql.bare(Role.ERROR),
            "afresh": also([*afresh, *sql.not_running()]),
            "conditions": self._conditions(),
        }

    def _conditions(self) -> str:
        sql = self._sql
        own = [f"{sql.column(Role.GROUP)} = :group"] if sql.grouped else []
        own += [f"{sql.column(Role.PROCESSED_AT)} IS NULL"] if sql.spec.has(Role.PROCESSED_AT) else []
        return every([*own, f"{sql.column(Role.ERROR)} IS NOT NULL"])


def id_in(column: ColumnSpec, given: Any, queue: str) -> Any:
    """An id as its column is declared; `ValueError` for one that cannot be of this table."""
    declared = column.type if isinstance(column.type, type) else object
    kind = next((kind for kind in ROLE_TYPES[Role.ID] if issubclass(declared, kind)), None)
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


class HasParkedRows:
    """What a queue can do with its parked rows."""

    broker: "Broker"
    spec: TableSpec
    group: str | None

    @property
    def name(self) -> str:
        raise NotImplementedError

    @property
    def registered(self) -> Handler | None:
        raise NotImplementedError

    def _open(self) -> None:
        raise NotImplementedError

    @property
    def _wake(self) -> Callable[[], None]:
        raise NotImplementedError

    def parked(self, *, limit: int = 100) -> Sequence[ParkedRow]:
        """The first `limit` parked rows, by id, with their messages as the queue's handler takes them.

        Raises `DeclarationError` for a table without an `error` column.
        """
        self._open()
        handler, most = self.registered, whole(limit, "limit", 0)
        kind, cap = (handler.kind, handler.max_attempts) if handler else (Any, None)
        with self.broker.pool.connection() as ours:
            return self._parking().rows(ours, self.broker.codec, kind=kind, cap=cap, limit=most)

    def requeue(self, ids: Any = None, *, connection: Any = None) -> int:
        """Put parked rows back to work, their attempts counted afresh; how many.

        `ids`: one id, or a row that `parked` returned, or a list of either; None for all parked rows. A row that is not
        parked is left alone. Each keeps its place in the claim order. `connection` as in `enqueue`.
        Raises `DeclarationError` for a table without an `error` column, `ValueError` for what is no id of its rows.
        """
        self._open()
        here = Destination(self.spec, self.group)
        calls = [self._parking().requeue(ids), *self.broker.notifications(here)]
        if connection is not None:
            count = len(self.broker.adopt(connection).run(calls)[0])
            self.broker.wake_after_commit(connection, self._wake)
            return count
        with self.broker.pool.connection() as ours:
            count = len(ours.run(calls)[0])
        log.info("queue %s: %d parked rows were put back to work", self.name, count)
        self._wake()
        return count

    def _parking(self) -> Parking:
        sql = QueueSQL(self.broker.dialect, self.spec, grouped=self.group is not None)
        return Parking(sql, queue=self.name, group=self.group)


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


def blocked_keys(connection: Connection, sql: QueueSQL, group: str | None) -> Iterator[BlockedKey]:
    """The lines that are held up, in the order of the lines; a front that is in work holds up nobody."""
    column = sql.spec.line
    if column is None:
        raise DeclarationError(
            f"table {sql.spec.full_name!r} has no FIFO lines that could be held up; mark its key or group with "
            "fifo=True"
        )
    hides = Role.RETRY_AFTER if sql.spec.has(Role.RETRY_AFTER) else Role.LEASE
    hiding = sql.spec.role(hides)
    if hiding is None:  # under a row lock nothing hides a row
        return
    statement = _hidden(sql, hides)
    values = Parameters(sql, group=group, cap=None).values(sql.spec.host_clock.now())
    read_key, read_id = sql.dialect.decoder(column), sql.dialect.decoder(sql.spec.id)
    read_until = sql.decoder(hides)
    last, told = None, set()
    while True:
        (rows,) = connection.run([Call(statement, {**values, "from_line": last})])
        for line, id, attempt, until, due, _ in rows:
            if line in told:
                return
            told.add(line)
            if not due:
                key, shown = _read(read_key, column, line), _read(read_id, sql.spec.id, id)
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


def _hidden(sql: QueueSQL, hides: Role) -> Statement:
    column, hiding = sql.spec.line, sql.spec.role(hides)
    assert column is not None
    assert hiding is not None
    parts = line_parts(sql, [] if hides is Role.RETRY_AFTER else [unleased(sql)], limit=ALL)
    select = fill(
        HIDDEN,
        {
            **parts,
            "read_line": sql.dialect.read(column, "_lines.line"),
            "attempt": sql.column(Role.ATTEMPT) if sql.spec.has(Role.ATTEMPT) else "NULL",
            "until": sql.dialect.read(hiding, sql.qualified(hiding)),
        },
    )
    walk = sql.dialect.walk_lines({**parts, "select": select}, "")
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
    spec = sql.spec
    parked, marked = spec.has(Role.ERROR), spec.has(Role.PROCESSED_AT)
    conditions = [*sql.unfinished(), *([unleased(sql)] if spec.has(Role.LEASE) else [])]
    names = {
        "table": sql.dialect.table(spec),
        "id": sql.column(Role.ID),
        "conditions": every(conditions or ["TRUE"]),
        "skip_locked": sql.dialect.skip_locked,
    }
    return sql.statement(
        "skip",
        SKIP_BY_PARKING if parked else SKIP_BY_MARK if marked else SKIP_BY_DELETE,
        width=1,
        free=fill(FREE, names),
        error=sql.bare(Role.ERROR) if parked else "",
        processed_at=sql.bare(Role.PROCESSED_AT) if marked else "",
        now=sql.now(Role.PROCESSED_AT) if marked else "",
    )
