"""A tracked handler: a message whose record is processed is skipped, and one that is handled has its record marked
before its row is settled."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs

from sqlqueue.broker import Broker
from sqlqueue.connection import Connection
from sqlqueue.consumer.run_handler import one_per_row
from sqlqueue.delivery import Delivery
from sqlqueue.errors import DeclarationError, TransactionError
from sqlqueue.handler import FORM, Handler, signature_of
from sqlqueue.outcome import Retry
from sqlqueue.queue import Queue
from sqlqueue.relay.record_table import Names, from_text
from sqlqueue.relay.records import Record, Records
from sqlqueue.roles import Role
from sqlqueue.sql import Call, Statement

log = logging.getLogger("sqlqueue")

#: Seconds until a message is retried whose record could not be read.
RETRY_AFTER = 1.0

SAVEPOINT = Call(Statement("set a savepoint", "SAVEPOINT sqlqueue_tracking", ()))
RELEASE = Call(Statement("release it", "RELEASE SAVEPOINT sqlqueue_tracking", ()))
ROLL_BACK = Call(Statement("roll back to it", "ROLLBACK TO SAVEPOINT sqlqueue_tracking", ()))


@attrs.frozen(kw_only=True)
class TrackedHandler:
    """Wraps the handlers whose messages are tracked. `name`: the destination under which their messages come, None
    where their records say it."""

    broker: Broker
    records: Records
    names: Names
    header: str
    name: str | None

    def wrap(self, function: Callable[..., Any]) -> Callable[[Any, Any], Any]:
        """The handler `function`, tracked; it takes the same messages."""
        label = getattr(function, "__qualname__", None) or repr(function)
        takes_delivery, kind = signature_of(function, f"tracked handler {label}", FORM)

        def call(message: Any, delivery: Any) -> Any:
            return function(message, delivery) if takes_delivery else function(message)

        def tracked(message: Any, delivery: Any) -> Any:
            if isinstance(delivery, Delivery):
                return self._one(call, message, delivery)
            return self._batch(call, message, delivery)

        tracked.check_queue = self._check_queue  # type: ignore[attr-defined]
        tracked.__annotations__ = {"message": kind, "delivery": Any}
        tracked.__name__, tracked.__qualname__ = getattr(function, "__name__", label), label
        tracked.__doc__, tracked.__module__ = function.__doc__, function.__module__
        return tracked

    def _check_queue(self, queue: Queue, handler: Handler) -> None:
        """`DeclarationError` where no record could be found, or none in the delivery's transaction."""
        where = f"queue {queue.name}, tracked handler {handler.name}"
        if not queue.spec.has(Role.HEADERS):
            raise DeclarationError(
                f"{where}: it finds its message's record by the headers, and table {queue.spec.full_name!r} has none; "
                "add headers: dict[str, str] | None = column.headers()"
            )
        here, there = self.broker.dialect.source, queue.broker.dialect.source
        if handler.transactional and queue.broker is not self.broker and here != there:
            raise DeclarationError(
                f"{where}: it is transactional, and its record is marked in its transaction, but its queue is in "
                f"{there}, and the records are in {here}; leave transactional out, or, where both are one database, "
                "make the tracking of the queue's broker"
            )

    def _one(self, call: Callable[[Any, Any], Any], message: Any, delivery: Delivery) -> Any:
        (record,) = self._find([delivery])
        if record is not None and record.processed:
            return self._skip(delivery, record)
        self._mark_when_processed({delivery: record})
        return call(message, delivery)

    def _batch(self, call: Callable[[Any, Any], Any], messages: list[Any], deliveries: list[Delivery]) -> Any:
        records = self._find(deliveries)
        indexes = [index for index, record in enumerate(records) if record is None or not record.processed]
        for delivery, record in zip(deliveries, records, strict=True):
            if record is not None and record.processed:
                self._skip(delivery, record)
        if not indexes:
            return None
        self._mark_when_processed({deliveries[index]: records[index] for index in indexes})
        called = _outcomes(call, [messages[index] for index in indexes], [deliveries[index] for index in indexes])
        outcomes: list[Any] = [None] * len(records)
        for index, outcome in zip(indexes, called, strict=True):
            outcomes[index] = outcome
        return outcomes

    def _skip(self, delivery: Delivery, record: Record) -> None:
        log.info(
            "queue %s: row %r was skipped: its record %r is processed", delivery.queue, delivery.claim.id, record.id
        )

    # -- the records ------------------------------------------------------------------------------------------

    def _find(self, deliveries: Sequence[Delivery]) -> Sequence[Record | None]:
        """The deliveries' records, None for a message that is not tracked. Raises `Retry` where they cannot be read."""
        named = [(index, self._id(delivery)) for index, delivery in enumerate(deliveries)]
        ids = {index: id for index, id in named if id is not None}
        found = self._read(deliveries[0], list(ids.values())) if ids else ()
        if found is None:
            raise Retry(after=RETRY_AFTER)
        records: list[Record | None] = [None] * len(deliveries)
        for index, record in zip(ids, found, strict=True):
            if record is not None and record.name in self.names and self.name in (None, record.name):
                records[index] = record  # else it is that of a message to another name
        return records

    def _read(self, delivery: Delivery, ids: Sequence[Any]) -> Sequence[Record | None] | None:
        """The records of these ids, None where they cannot be read. The error is logged and goes no further: what
        refers to it refers to the connection, which a transactional handler must give back."""
        try:
            with self._connection(delivery) as connection:
                return self.records.find(connection, ids)
        except Exception as error:  # noqa: BLE001 - the driver's
            log.warning(
                "queue %s: row %r comes again in %g s: its record in table %r cannot be read: %s",
                delivery.queue,
                delivery.claim.id,
                RETRY_AFTER,
                self.records.spec.full_name,
                str(error),
            )
            return None

    def _id(self, delivery: Delivery) -> Any:
        """The id of the delivery's record, None where it has none."""
        delivery.keep_back(self.header)
        text = delivery.headers.get(self.header)
        if text is None or (self.name is not None and self.name not in self.names):
            return None
        try:
            return from_text(self.records.spec.id, text)
        except ValueError as error:
            log.debug("queue %s: row %r is not tracked: %s", delivery.queue, delivery.claim.id, error)
            return None

    def _mark_when_processed(self, records: Mapping[Delivery, Record | None]) -> None:
        """Not when the handler returns: where its reply is not confirmed the message comes again, and not to be
        skipped."""
        ids = {delivery: record.id for delivery, record in records.items() if record is not None}
        mark = partial(self._mark, ids)  # one for all of a batch
        for delivery in ids:
            delivery.when_processed(mark)

    def _mark(self, ids_of: Mapping[Delivery, Any], processed: Sequence[Delivery]) -> None:
        ids = [ids_of[delivery] for delivery in processed]
        try:
            with self._connection(processed[0]) as connection:
                self.records.mark(connection, ids)
        except Exception as error:  # noqa: BLE001 - the driver's; what the handler did is done
            log.warning(
                "queue %s: the records %s in table %r could not be marked, so their messages are sent again at the "
                "next start: %s",
                processed[0].queue,
                ", ".join(map(repr, ids)),
                self.records.spec.full_name,
                str(error),
            )

    @contextmanager
    def _connection(self, delivery: Delivery) -> Iterator[Connection]:
        """The pool's; a transactional handler's own, so that the mark is undone with what the handler wrote. There
        what fails leaves the transaction as it was."""
        try:
            driver = delivery.connection
        except TransactionError:
            driver = None
        if driver is None:
            with self.broker.pool.connection() as connection:
                yield connection
            return
        connection = self.broker.adopt(driver)
        connection.run([SAVEPOINT])
        try:
            yield connection
        except BaseException:
            connection.run([ROLL_BACK])
            connection.run([RELEASE])
            raise
        connection.run([RELEASE])


def _outcomes(call: Callable[[Any, Any], Any], messages: list[Any], deliveries: list[Delivery]) -> Sequence[Any]:
    """An outcome for each message. An error is one of these messages only: those that were skipped are done."""
    try:
        return one_per_row(call(messages, deliveries), len(messages))
    except Exception as error:  # noqa: BLE001 - around the handler, which may raise anything
        return [error] * len(messages)
