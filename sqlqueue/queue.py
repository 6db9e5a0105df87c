"""A queue: rows are enqueued, looked at and put back to work here, and the one handler is registered."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Literal, Protocol, TypeVar, overload

import attrs

from sqlqueue.clock import Duration
from sqlqueue.codec import Codec
from sqlqueue.connection import Connection, Hint, Pool
from sqlqueue.delivery import payload_decoder
from sqlqueue.destination import Destination, check_apart
from sqlqueue.dialect import Converter, Dialect
from sqlqueue.enqueue import RowMaker
from sqlqueue.errors import BrokerClosed, DeclarationError
from sqlqueue.handler import Handler, Settings, make_handler, publisher_of, whole
from sqlqueue.inspect import BlockedKey, ParkedRow, Parking, blocked_keys, skip
from sqlqueue.publisher import Publisher
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.spec import TableSpec
from sqlqueue.sql import Call

log = logging.getLogger("sqlqueue")

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

Conflict = Literal["error", "ignore"]


@attrs.frozen(eq=False, kw_only=True)
class ServedQueue:
    """A queue that a consumer of this process serves.

    `wake` is called for a row on one of its `channels` in its `group` (None: in any), `stop` for a notification that
    asks the consumers of the table to stop, `let_go` before the broker's connections are closed.
    """

    channels: Sequence[str]
    group: str | None
    wake: Callable[[], None]
    stop: Callable[[], None]
    let_go: Callable[[], None]


class QueueBroker(Protocol):
    """What a queue and its consumer need of their broker. `sqlqueue.Broker` is one."""

    dialect: Dialect
    codec: Codec
    notify: bool
    closed: bool
    lease: float
    poll_interval: float

    @property
    def pool(self) -> Pool: ...
    @property
    def queues(self) -> "Sequence[Queue]": ...
    def queue(self, declared: type | TableSpec, group: str | None = None) -> "Queue": ...
    def adopt(self, connection: Any) -> Connection: ...
    def publisher(self, url: str) -> Publisher: ...
    def notify_of(self, spec: TableSpec) -> None: ...
    def notifications(self, queue: "Queue | Destination") -> Sequence[Call]: ...
    def wake(self, queue: "Queue | Destination") -> None: ...
    def wake_after_commit(self, connection: Any, wake: Callable[[], None]) -> None: ...
    def hint(self, hint: Hint) -> None: ...
    def listen(self, served: ServedQueue) -> Callable[[], None]: ...
    def create_tables(self) -> None: ...
    def ddl(self, declared: type | TableSpec) -> str: ...
    def close(self) -> None: ...


@attrs.define(eq=False)
class Queue:
    """A table, or one group of it, of one broker. Made by `Broker.queue`."""

    broker: QueueBroker = attrs.field(repr=False)
    spec: TableSpec = attrs.field(repr=lambda spec: spec.full_name)
    group: str | None = None
    _handler: Handler | None = attrs.field(default=None, init=False)

    @property
    def name(self) -> str:
        """The table's name, with the group where there is one: for logs, errors and `health()`."""
        return self.spec.full_name if self.group is None else f"{self.spec.full_name}[{self.group}]"

    # -- enqueue ----------------------------------------------------------------------------------------------

    def enqueue(
        self,
        message: Any,
        *,
        key: Any = None,
        headers: Mapping[str, Any] | None = None,
        priority: float | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        on_conflict: Conflict = "error",
        connection: Any = None,
    ) -> Any:
        """Insert one row and return its id.

        `message` is encoded into the payload, or is a row of the table (an object of its class, or a mapping
        for a description built by hand) that is inserted as it is. `key`, `headers` and `priority` fill the columns
        of these roles. `delay` (seconds or timedelta, from the table's clock's *now*) or `at` (an aware datetime)
        hide the row until then.
        `on_conflict="ignore"` leaves out a row that meets one of the table's unique indexes and returns None.
        `connection`: the caller's own, of psycopg, psycopg2 or sqlite3, a SQLAlchemy `Session` or `Connection`, or
        Django's; the row then belongs to its transaction, and the caller commits.

        Raises `BrokerClosed`, `EncodeError` for a message or header that cannot be stored, `DeclarationError` for an
        option whose column the table lacks, `ValueError` for a bad time, and the driver's error where the insert fails.
        """
        broker, options = self._open, {"key": key, "headers": headers, "priority": priority, "delay": delay, "at": at}
        insertion = self._rows.insertion(message, on_conflict=on_conflict, **options)
        calls = [insertion, *broker.notifications(self)]
        rows = self._run(lambda on: on.run(calls)[0], connection)
        if not rows:
            return None
        decode = self._id_decoder
        return rows[0][0] if decode is None else decode(rows[0][0])

    def insertion(self, message: Any, *, on_conflict: Conflict = "error", **options: Any) -> Call:
        """The statement that `enqueue` runs, to be run with others. `options`: those of `enqueue`, and `fields`, values
        of the row by field."""
        return self._rows.insertion(message, on_conflict=on_conflict, **options)

    def enqueue_many(self, messages: Iterable[Any], *, connection: Any = None) -> int:
        """Insert a row for each message, or row, in one transaction and the fastest way; how many rows.

        All are inserted or none. `connection` as in `enqueue`; all messages are then read before the first statement.
        """
        notify, rows = self._open.notifications(self), self._rows
        return self._run(
            lambda on: on.insert_many(rows.bulk, self.spec, rows.columns, rows.many(messages, on), then=notify),
            connection,
        )

    def _run(self, work: Callable[[Connection], T], connection: Any) -> T:
        """Do `work` on the caller's connection, or on one of the pool's, and wake consumers once it is committed."""
        broker = self._open
        if connection is not None:
            done = work(broker.adopt(connection))
            broker.wake_after_commit(connection, self._wake)
            return done
        with broker.pool.connection() as ours:
            done = work(ours)
        broker.wake(self)
        return done

    @property
    def _open(self) -> QueueBroker:
        """The broker, unless it is closed."""
        if self.broker.closed:
            raise BrokerClosed(f"queue {self.name}: the broker is closed; nothing was written")
        return self.broker

    @cached_property
    def _wake(self) -> Callable[[], None]:
        return partial(self.broker.wake, self)  # one object, so that a transaction of many rows keeps one

    @cached_property
    def _rows(self) -> RowMaker:
        return RowMaker(
            queue=self.name, spec=self.spec, group=self.group, codec=self.broker.codec, dialect=self.broker.dialect
        )

    @cached_property
    def _id_decoder(self) -> Converter | None:
        return self.broker.dialect.decoder(self.spec.id)

    # -- for operators ----------------------------------------------------------------------------------------

    def parked(self, *, limit: int = 100) -> Sequence[ParkedRow]:
        """The first `limit` parked rows, by id, with their messages as the queue's handler takes them.

        Raises `DeclarationError` for a table without an `error` column.
        """
        broker, handler, most = self._open, self._handler, whole(limit, "limit", 0)
        kind, cap = (handler.kind, handler.max_attempts) if handler else (Any, None)
        with broker.pool.connection() as ours:
            return self._parking.rows(ours, broker.codec, kind=kind, cap=cap, limit=most)

    def requeue(self, ids: Any = None, *, connection: Any = None) -> int:
        """Put parked rows back to work and count their attempts from 0 again; how many rows.

        `ids`: one id, or a row that `parked` returned, or a list of either; None for all parked rows. A row that is not
        parked is left alone. Each keeps its place in the claim order. `connection` as in `enqueue`.
        Raises `DeclarationError` for a table without an `error` column, `ValueError` for what is no id of its rows.
        """
        broker = self._open
        calls = [self._parking.requeue(ids), *broker.notifications(self)]
        count = self._run(lambda on: len(on.run(calls)[0]), connection)
        if connection is None:
            log.info("queue %s: %d parked rows were put back to work", self.name, count)
        return count

    @property
    def _parking(self) -> Parking:
        return Parking(self._sql, queue=self.name, group=self.group)

    def blocked_keys(self) -> Sequence[BlockedKey]:
        """The keys of a FIFO table that are blocked: the head of the key waits for its retry, or for its time, and all
        rows behind it wait as well. In the order of the keys; reads one row for each key. A key whose head is in work
        is not blocked.

        Where no `retry_after` column hides rows, the lease does, and a head in work cannot be told from one that
        waits: both are listed. Raises `DeclarationError` for a table without FIFO keys.
        """
        with self._open.pool.connection() as ours:
            return list(blocked_keys(ours, self._sql, self.group))

    def skip(self, id: Any, *, connection: Any = None) -> bool:
        """Finish a row that nobody works on, so that the rows behind it in its key go on; whether there was such a row.

        The row is parked where the table has an `error` column, else finished as an acknowledgement does. `connection`
        as in `enqueue`. A row whose lease has not ended is left alone, as one in work. Raises `DeclarationError` for
        rows that are held by advisory locks.
        """
        skipped = self._run(lambda on: skip(on, self._sql, self.group, id), connection)
        if skipped and connection is None:
            log.info("queue %s: row %r was skipped", self.name, id)
        return skipped

    @cached_property
    def _sql(self) -> QueueSQL:
        return QueueSQL(self.broker.dialect, self.spec, grouped=self.group is not None)

    # -- work -------------------------------------------------------------------------------------------------

    @overload
    def handler(self, function: F) -> F: ...
    @overload
    def handler(
        self,
        *,
        workers: int = 1,
        by_key: bool = False,
        prefetch: int = 0,
        batch: int | None = None,
        transactional: bool = False,
        max_attempts: int | None = None,
        dead_letter: "Queue | type | TableSpec | str | None" = None,
        retry: Any = ...,
        on_decode_error: Any = ...,
        lease: Duration | None = None,
        poll_interval: Duration | None = None,
        reply_to: Publisher | str | None = None,
    ) -> Callable[[F], F]: ...
    def handler(self, function: Any = None, **options: Any) -> Any:
        """Register the function that handles the queue's rows. It is called as `f(message)` or `f(message, delivery)`,
        with `batch` as `f(messages)` or `f(messages, deliveries)`.

        `workers`: deliveries in work at once (1). `by_key`: rows of one key run one at a time, in claim order.
        `prefetch`: rows claimed ahead, beside those in work (0). `batch`: up to so many rows of one claim come as one
        list, in claim order; the handler returns None or a list with an outcome for each. `max_attempts`: a row is
        spent after so many deliveries (no cap). `dead_letter`: where a spent row goes: a group of the same table,
        another declared table, or a queue of the same broker. By default the row is parked, or dropped where no column
        holds its error. `retry`: what a failure does: a policy of `sqlqueue.retry`, a function of attempt and
        exception, a fixed delay in seconds, None for no retry, or a mapping from exception classes to any of these. By
        default the row waits 1 s, doubling to 1 h. `on_decode_error`: the same for a row that cannot be read; by
        default no retry. `lease`, `poll_interval`: seconds, by default the broker's.

        `transactional`: `delivery.connection` is the driver's own connection in an open transaction. The
        acknowledgement commits it together with the row's settlement. Every other outcome undoes it.

        `reply_to`: a publisher or its URL. What the handler returns is published there before the row is settled.

        Raises `DeclarationError` for what cannot work, `PublisherNotFound` for a URL that nothing installed serves.
        """
        given = Settings(**options)
        if given.reply_to is not None:
            publisher_of(given.reply_to, self.broker.publisher, "reply_to")

        def register(function: Any) -> Any:
            broker = self.broker
            dead_letter = None if given.dead_letter is None else self._destination(given.dead_letter)
            self.register(
                make_handler(
                    function,
                    self.spec,
                    given,
                    lease=broker.lease,
                    poll_interval=broker.poll_interval,
                    dead_letter=dead_letter,
                )
            )
            return function

        return register if function is None else register(function)

    @property
    def registered(self) -> Handler | None:
        """The queue's handler, None while there is none."""
        return self._handler

    def _destination(self, given: "Queue | type | TableSpec | str") -> Destination:
        """What `dead_letter=` names, made a queue of the broker, so that `create_tables` creates its table too."""
        if isinstance(given, str):
            given = self.broker.queue(self.spec, group=given)
        queue = given if isinstance(given, Queue) else self.broker.queue(given)
        if queue.broker is not self.broker:
            raise DeclarationError(f"queue {self.name}: dead_letter={queue.name} is a queue of another broker")
        destination = Destination(queue.spec, queue.group)
        check_apart(self.spec, self.group, destination)
        return destination

    def register(self, made: Handler) -> None:
        """Take a handler that was made by `make_handler`."""
        # Two descriptions of one table are one queue.
        for queue in self.broker.queues:
            if queue.name == self.name and queue.registered is not None:
                raise DeclarationError(
                    f"queue {self.name}: {made.name} is its second handler beside {queue.registered.name}; a queue of "
                    "one broker has one: leave out one of the two"
                )
        if self.spec.has(Role.PAYLOAD) and made.kind is not bytes:
            payload_decoder(self.broker.codec, made.kind)
        made.check(self)
        if made.channels:
            self.broker.notify_of(self.spec)
        self._handler = made
