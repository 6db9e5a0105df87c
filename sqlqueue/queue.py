"""Enqueue: a message becomes a row. And the one handler that works a queue's rows off."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import attrs

from sqlqueue.clock import Duration
from sqlqueue.delivery import payload_decoder
from sqlqueue.destination import Destination, check_apart
from sqlqueue.dialect import Connection, Converter
from sqlqueue.enqueue import RowMaker
from sqlqueue.errors import BrokerClosed, DeclarationError
from sqlqueue.handler import Handler, make_handler, publisher_of, refuse_transactional_batch
from sqlqueue.inspect import BlockedKey, HasParkedRows, blocked_keys, skip
from sqlqueue.publisher import Publisher
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.spec import TableSpec
from sqlqueue.sql import Call, Statement
from sqlqueue.statements import insert

if TYPE_CHECKING:
    from sqlqueue.broker import Broker

log = logging.getLogger("sqlqueue")

F = TypeVar("F", bound=Callable[..., Any])

Conflict = Literal["error", "ignore"]


@attrs.define(eq=False)
class Queue(HasParkedRows):
    """A table, or one group of it, of one broker. Made by `Broker.queue`."""

    broker: "Broker" = attrs.field(repr=False)
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
        self._open()
        options = {"key": key, "headers": headers, "priority": priority, "delay": delay, "at": at}
        calls = [self.insertion(message, on_conflict=on_conflict, **options), *self.broker.notifications(self)]
        if connection is not None:
            rows = self.broker.adopt(connection).run(calls)[0]
            self.broker.wake_after_commit(connection, self._wake)
        else:
            with self.broker.pool.connection() as ours:
                rows = ours.run(calls)[0]
            self.broker.wake(self)
        if not rows:
            return None
        decode = self._id_decoder
        return rows[0][0] if decode is None else decode(rows[0][0])

    def insertion(self, message: Any, *, on_conflict: Conflict = "error", **options: Any) -> Call:
        """The statement that `enqueue` runs, for those who run it with others. `options`: those of `enqueue`, and
        `fields`, values of the row by field."""
        row = self._rows.row(message, **options)
        if on_conflict not in ("error", "ignore"):
            raise ValueError(f"on_conflict is {on_conflict!r}; give 'error' or 'ignore'")
        return Call(self._inserts[on_conflict], self._rows.named(row))

    def enqueue_many(self, messages: Iterable[Any], *, connection: Any = None) -> int:
        """Insert a row for each message, or row, all in one transaction, the fastest way; how many.

        All are inserted or none. `connection` as in `enqueue`; all messages are then read before the first statement.
        """
        self._open()
        if connection is not None:
            count = self._insert_many(self.broker.adopt(connection), messages)
            self.broker.wake_after_commit(connection, self._wake)
            return count
        with self.broker.pool.connection() as ours:
            count = self._insert_many(ours, messages)
        self.broker.wake(self)
        return count

    def _insert_many(self, connection: Connection, messages: Iterable[Any]) -> int:
        told = self.broker.notifications(self)
        rows = self._rows.many(messages, connection)
        return connection.insert_many(self._insert_only, self.spec, self._rows.columns, rows, then=told)

    def _open(self) -> None:
        if self.broker.closed:
            raise BrokerClosed(f"queue {self.name}: the broker is closed; nothing was written")

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

    @cached_property
    def _inserts(self) -> Mapping[str, Statement]:
        dialect, rows = self.broker.dialect, self._rows
        return {
            conflict: insert(dialect, self.spec, rows.columns, ignore=conflict == "ignore", delay=rows.delay)
            for conflict in ("error", "ignore")
        }

    @cached_property
    def _insert_only(self) -> Statement:
        return insert(self.broker.dialect, self.spec, self._rows.columns, returning=False)

    # -- lines ------------------------------------------------------------------------------------------------

    def blocked_keys(self) -> Sequence[BlockedKey]:
        """The keys of a FIFO table that are held up: their front waits for its retry, or for its time, and all rows
        behind it with it. In the order of the keys; reads one row for each key. A front that is in work holds up
        nobody.

        Where no `retry_after` column hides rows, the lease does, and a front in work cannot be told from one that
        waits: both are listed. Raises `DeclarationError` for a table without FIFO lines.
        """
        self._open()
        with self.broker.pool.connection() as ours:
            return list(blocked_keys(ours, self._sql, self.group))

    def skip(self, id: Any, *, connection: Any = None) -> bool:
        """Take a row that nobody works on out of its line, so that those behind it go on; whether there was such a row.

        The row is parked where the table has an `error` column, else finished as an acknowledgement does. `connection`
        as in `enqueue`. A row whose lease has not ended is left alone, as one in work. Raises `DeclarationError` for
        rows that are held by advisory locks.
        """
        self._open()
        if connection is not None:
            skipped = skip(self.broker.adopt(connection), self._sql, self.group, id)
            self.broker.wake_after_commit(connection, self._wake)
            return skipped
        with self.broker.pool.connection() as ours:
            skipped = skip(ours, self._sql, self.group, id)
        if skipped:
            log.info("queue %s: row %r was skipped", self.name, id)
            self.broker.wake(self)
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
    def handler(
        self,
        function: Any = None,
        *,
        workers: int = 1,
        by_key: bool = False,
        prefetch: int = 0,
        batch: int | None = None,
        transactional: bool = False,
        max_attempts: int | None = None,
        dead_letter: "Queue | type | TableSpec | str | None" = None,
        retry: Any = attrs.NOTHING,
        on_decode_error: Any = attrs.NOTHING,
        lease: Duration | None = None,
        poll_interval: Duration | None = None,
        reply_to: Publisher | str | None = None,
    ) -> Any:
        """Register the function that works the queue's rows off, called as `f(message)` or `f(message, delivery)`; with
        a batch as `f(messages)` or `f(messages, deliveries)`.

        `workers`: deliveries in work at once (1). `by_key`: rows of one key run one at a time in claim order.
        `prefetch`: rows claimed ahead, beside those in work (0). `batch`: up to so many rows of one claim come as one
        list, in claim order; the handler returns None or a list with an outcome for each. `max_attempts`: deliveries
        after which a row is spent (no cap). `dead_letter`: where a row goes that is spent: a group of the same table,
        another declared table, or a queue of the same broker; by default it is parked, or dropped where no column holds
        its error. `retry`: what a failure does: a policy of `sqlqueue.retry`, a function of attempt and exception, a
        fixed delay in seconds, None for no retry, or a mapping from exception classes to any of these; by default 1 s
        doubling to 1 h. `on_decode_error`: the same for a row that cannot be read; by default no retry. `lease`,
        `poll_interval`: seconds, by default the broker's.

        `transactional`: `delivery.connection` is the driver's own connection, inside a transaction that the
        acknowledgement commits with the row's settlement, and that every other outcome undoes.

        `reply_to`: a publisher, or its URL, to which what the handler returns is published before the row is settled.

        Raises `DeclarationError` for what cannot work, `PublisherNotFound` for a URL that nothing installed serves.
        """
        refuse_transactional_batch(batch, transactional)
        if reply_to is not None:
            publisher_of(reply_to, self.broker.publisher, "reply_to")

        def register(function: Any) -> Any:
            made = make_handler(
                function,
                self.spec,
                workers=workers,
                by_key=by_key,
                prefetch=prefetch,
                transactional=transactional,
                batch=batch,
                max_attempts=max_attempts,
                dead_letter=None if dead_letter is None else self._destination(dead_letter),
                retry=retry,
                on_decode_error=on_decode_error,
                lease=self.broker.lease if lease is None else lease,
                poll_interval=self.broker.poll_interval if poll_interval is None else poll_interval,
                reply_to=reply_to,
            )
            self.register(made)
            return function

        return register if function is None else register(function)

    @property
    def registered(self) -> Handler | None:
        """The queue's handler, None while there is none."""
        return self._handler

    def _destination(self, given: "Queue | type | TableSpec | str") -> Destination:
        """What `dead_letter=` names: made a queue of the broker, which creates its table with the others."""
        if isinstance(given, str):
            given = self.broker.queue(self.spec, group=given)
        queue = given if isinstance(given, Queue) else self.broker.queue(given)
        if queue.broker is not self.broker:
            raise DeclarationError(f"queue {self.name}: dead_letter={queue.name} is a queue of another broker")
        destination = Destination(queue.spec, queue.group)
        check_apart(self.spec, self.group, destination)
        return destination

    def register(self, made: Handler) -> None:
        """Take a handler that is made already."""
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
        self._handler = made
