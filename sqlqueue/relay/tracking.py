"""Outbox tracking: what is published is recorded first, marked once it is processed, and sent again until then."""

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, overload

import attrs

from sqlqueue.broker import Broker
from sqlqueue.clock import Duration, seconds
from sqlqueue.codec import RECORD_HEADER
from sqlqueue.errors import DeclarationError, PublishError
from sqlqueue.handler import publisher_of, whole
from sqlqueue.publisher import OutgoingMessage, Publisher
from sqlqueue.relay.record_table import Names, ddl_statements, from_text, to_text
from sqlqueue.relay.records import Records, Unprocessed
from sqlqueue.relay.tracked_handler import TrackedHandler
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.sql import Call, Statement

log = logging.getLogger("sqlqueue")


@attrs.frozen(kw_only=True)
class RecordingPublisher:
    """A publisher that records what it is given before `inner` sends it. Made by `Tracking.publisher`."""

    inner: Publisher
    broker: Broker = attrs.field(repr=False)
    records: Records = attrs.field(repr=False)
    names: Names
    header: str

    @property
    def name(self) -> str:
        """Where `inner` sends to."""
        return self.inner.name

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """Record those messages that go to a tracked name, all in one transaction of its own, then send all of them in
        their order; what is recorded carries its record's id as message id and in the header, which no
        other message has.

        Raises `PublishError` from its cause where they cannot be recorded, and then nothing was sent; else as `inner`
        does. What was recorded and not confirmed is sent again at the next start.
        """
        tracked = [index for index, message in enumerate(messages) if message.destination in self.names]
        sent = [self._without_header(message) for message in messages]
        if tracked:
            try:
                with self.broker.pool.connection() as connection:
                    ids = self.records.write(connection, [sent[index] for index in tracked])
            except Exception as error:
                raise PublishError(
                    f"{self.name}: nothing was sent, for its records could not be written to table "
                    f"{self.records.spec.full_name!r}: {error}",
                    dict.fromkeys(range(len(messages)), "not recorded"),
                ) from error
            for index, id in zip(tracked, map(to_text, ids), strict=True):
                headers = {**sent[index].headers, self.header: id}
                sent[index] = attrs.evolve(sent[index], headers=headers, id=id)
        self.inner.publish(sent)

    def _without_header(self, message: OutgoingMessage) -> OutgoingMessage:
        """A handler may hand on the headers of what it answers to, whose record is another one, or that of another
        message where this one has none."""
        if self.header not in message.headers:
            return message
        headers = {name: value for name, value in message.headers.items() if name != self.header}
        return attrs.evolve(message, headers=headers)

    def close(self) -> None:
        """Close `inner`."""
        self.inner.close()


class Tracking:
    """Tracks what is published by a table of records.

    `declared`: the table's class or `TableSpec`: an id, a `group` for the destination, a `payload`, and, where messages
    have such, `partition_key` and `headers`. With `processed_at` a processed record is kept, without it is deleted.
    `names`: the destinations that are tracked (None: all). `header`: what carries a record's id beside the message id.

    Raises `DeclarationError` for a table that cannot keep what is published.
    """

    def __init__(
        self,
        broker: Broker,
        declared: "type | TableSpec",
        *,
        names: Iterable[str] | str | None = None,
        header: str = RECORD_HEADER,
    ) -> None:
        self._broker, self._names, self._header = broker, Names(names), header
        self._records = Records(broker.dialect, spec_of(declared), broker.codec)
        self._publishers: list[Publisher] = []

    # -- publishing -------------------------------------------------------------------------------------------

    def publisher(self, inner: Publisher | str) -> RecordingPublisher:
        """A publisher that commits a record of each message to a tracked name, in a transaction of its own, and then
        has `inner`, a publisher or its URL, send it with its record's id, as message id and in the header. Messages to
        other names are sent as they are. Raises `DeclarationError`, and what `Broker.publisher` raises for a URL."""
        inner = publisher_of(inner, self._broker.publisher, "publisher")
        if not any(one is inner for one in self._publishers):
            self._publishers.append(inner)
        return RecordingPublisher(
            inner=inner, broker=self._broker, records=self._records, names=self._names, header=self._header
        )

    def republish(
        self,
        publisher: Publisher | str | None = None,
        *,
        names: Iterable[str] | str | None = None,
        limit: int | None = None,
    ) -> int:
        """Send what is recorded and not processed, in the order of the ids, each message with its id and headers; how
        many. For the start of a service, once its consumers are open.

        `publisher`: one, or its URL; by default the one that `publisher()` was given. `names`: of these destinations
        (all that are tracked). `limit`: so many at most (all). What is recorded after it begins is left to who records
        it. Instances that start together may send a message twice.

        Raises `PublishError`, which names the record, where the target does not confirm one, `SchemaError` where the
        table is not as declared, `DecodeError` for a record that cannot be read, and the driver's errors; those before
        it were sent.
        """
        inner = self._inner(publisher)
        most = None if limit is None else whole(limit, "limit", 0)
        unprocessed = Unprocessed(self._records, self._names.only(names))
        pool = self._broker.pool
        with pool.connection() as connection:
            unprocessed.check(connection)
        count = 0
        for rows in unprocessed.pages(pool, most):
            self._send(inner, [unprocessed.message(row, self._header) for row in rows])
            count += len(rows)
        log.info("table %s: %d unprocessed records were sent to %s", self._records.spec.full_name, count, inner.name)
        return count

    def _send(self, inner: Publisher, messages: Sequence[OutgoingMessage]) -> None:
        """The indexes of the messages mean nothing to who reads the error; the ids of their records do."""
        try:
            inner.publish(messages)
        except Exception as error:
            named = error.unconfirmed if isinstance(error, PublishError) else {}
            unconfirmed = {index: named[index] for index in sorted(named) if index in range(len(messages))}
            unconfirmed = unconfirmed or dict.fromkeys(range(len(messages)), str(error))
            (index, why), more = next(iter(unconfirmed.items())), len(unconfirmed) - 1
            id = messages[index].id
            others, were = (f" and {more} more", "were") if more else ("", "was")
            raise PublishError(
                f"{inner.name}: record {id!r}{others} in table {self._records.spec.full_name!r} {were} not sent again: "
                f"{why}; mend that, or give a record up with tracking.mark({id!r})",
                unconfirmed,
            ) from error

    def _inner(self, given: Publisher | str | None) -> Publisher:
        if isinstance(given, RecordingPublisher):
            return given.inner
        if given is not None:
            return publisher_of(given, self._broker.publisher, "publisher")
        if len(self._publishers) != 1:
            raise DeclarationError(
                f"republish() without a publisher, and publisher() was given {len(self._publishers)} of them; name one"
            )
        return self._publishers[0]

    # -- consuming --------------------------------------------------------------------------------------------

    @overload
    def consumer(self, function: Callable[..., Any]) -> Callable[[Any, Any], Any]: ...
    @overload
    def consumer(self, *, name: str | None = None) -> Callable[[Callable[..., Any]], Callable[[Any, Any], Any]]: ...
    def consumer(self, function: Callable[..., Any] | None = None, *, name: str | None = None) -> Any:
        """A queue's handler that runs `function` unless the message's record is processed, and marks the record where
        the outcome is an acknowledgement, with its replies confirmed, or `Drop`.

        The record is named by the delivery's headers; a message without one that can be found, or of a name that is not
        tracked, is handled as if there were no tracking. `name`: the destination under which the messages come; records
        of others are then not theirs. Where the record cannot be read the message is retried, where it cannot be marked
        that is a warning. A transactional handler's record is marked in its transaction: its queue must be in the
        database of the records.
        """
        handler = TrackedHandler(
            broker=self._broker, records=self._records, names=self._names, header=self._header, name=name
        )
        return handler.wrap if function is None else handler.wrap(function)

    def seen(self, id: Any) -> bool:
        """Whether the record of this id, as the message carries it or of the column's own type, is processed.

        False where there is no such record; so always where processed records are deleted. Raises the driver's errors.
        """
        own = self._own(id)
        if own is None:
            return False
        with self._broker.pool.connection() as connection:
            (record,) = self._records.find(connection, [own])
        return record is not None and record.processed

    def mark(self, id: Any) -> bool:
        """Have the record of this id processed; whether it was there and was not. Raises the driver's errors."""
        own = self._own(id)
        if own is None:
            return False
        with self._broker.pool.connection() as connection:
            return bool(self._records.mark(connection, [own]))

    def _own(self, id: Any) -> Any:
        if not isinstance(id, str):
            return id
        try:
            return from_text(self._records.spec.id, id)
        except ValueError:
            return None

    # -- the table --------------------------------------------------------------------------------------------

    def prune(self, older_than: Duration) -> int:
        """Delete the records that were processed at least so long ago (seconds or timedelta), a thousand in a
        transaction; how many. Raises `DeclarationError` for a table that keeps no processed records."""
        age = seconds(older_than, "older_than")
        with self._broker.pool.connection() as connection:
            now = self._records.now(connection)
        try:
            before = now - timedelta(seconds=age)
        except OverflowError:
            return 0
        count = self._records.prune(self._broker.pool, before)
        log.info("table %s: %d processed records were pruned", self._records.spec.full_name, count)
        return count

    def ddl(self) -> str:
        """The recommended table and indexes, as a script."""
        statements = ddl_statements(self._broker.dialect, self._records.spec)
        return "".join(f"{text.strip().rstrip(';')};\n" for text in statements)

    def create_table(self) -> None:
        """Create the table and its indexes where they are missing; an existing table stays as it is."""
        statements = ddl_statements(self._broker.dialect, self._records.spec)
        with self._broker.pool.connection() as connection:
            connection.run([Call(Statement("create table", text, ())) for text in statements])
