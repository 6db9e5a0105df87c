"""For operators: the rows that were parked, and how they are put back to work."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

import attrs

from sqlqueue.codec import Codec
from sqlqueue.column import Role
from sqlqueue.connection import Connection
from sqlqueue.delivery import Delivery
from sqlqueue.destination import Destination
from sqlqueue.errors import DeclarationError, DecodeError
from sqlqueue.handler import Handler, whole
from sqlqueue.rows import Reader, reader
from sqlqueue.spec import ROLE_TYPES, ColumnSpec, TableSpec
from sqlqueue.sql import Call, Statement
from sqlqueue.strategies.base import Claim
from sqlqueue.words import Words, also, every

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

    def __init__(self, words: Words, *, queue: str, group: str | None) -> None:
        if not words.spec.has(Role.ERROR):
            raise DeclarationError(
                f"queue {queue}: its table parks no rows; mark a column with column.error(), as in "
                "error: str | None = column.error()"
            )
        self._words, self._queue, self._group = words, queue, group

    # -- looking ----------------------------------------------------------------------------------------------

    def rows(
        self, connection: Connection, codec: Codec, *, kind: Any, cap: int | None, limit: int
    ) -> Sequence[ParkedRow]:
        """The first parked rows by id; `kind` is the type of their messages, `cap` the most attempts of a row."""
        read = reader(self._words.dialect, self._words.spec, codec, kind)
        (rows,) = connection.run([Call(self.listing(read), {"group": self._group, "limit": limit})])
        return [self._shown(read, row, cap) for row in rows]

    def listing(self, read: Reader) -> Statement:
        words = self._words
        return words.statement(
            "list the parked rows",
            PARKED,
            width=3 + len(read.columns),
            writes=False,
            attempt=words.column(Role.ATTEMPT) if words.spec.has(Role.ATTEMPT) else "NULL",
            error=words.column(Role.ERROR),
            columns=", ".join(words.dialect.read(column, words.qualified(column)) for column in read.columns),
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
        column, dialect = self._words.spec.id, self._words.dialect
        taken = [
            one.id if isinstance(one, ParkedRow | AsFound) else id_in(column, one, self._queue) for one in listed(ids)
        ]
        return Call(self._requeue(), {**values, "id": [one for id in taken for one in dialect.spellings(column, id)]})

    def _requeue(self) -> Statement:
        words = self._words
        return words.settlement("requeue", REQUEUE, {"id": words.spec.id}, singly=False, **self._shape())

    def _requeue_all(self) -> Statement:
        return self._words.statement("requeue all", REQUEUE_ALL, width=1, writes=True, **self._shape())

    def _shape(self) -> dict[str, str]:
        words = self._words
        afresh = [f"{words.bare(Role.ATTEMPT)} = 0"] if words.spec.has(Role.ATTEMPT) else []
        afresh += [f"{words.bare(Role.LEASE)} = NULL"] if words.spec.has(Role.LEASE) else []
        return {
            "error": words.bare(Role.ERROR),
            "afresh": also([*afresh, *words.not_running()]),
            "conditions": self._conditions(),
        }

    def _conditions(self) -> str:
        words = self._words
        own = [f"{words.column(Role.GROUP)} = :group"] if words.grouped else []
        own += [f"{words.column(Role.PROCESSED_AT)} IS NULL"] if words.spec.has(Role.PROCESSED_AT) else []
        return every([*own, f"{words.column(Role.ERROR)} IS NOT NULL"])


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
        words = Words(self.broker.dialect, self.spec, grouped=self.group is not None)
        return Parking(words, queue=self.name, group=self.group)
