"""Publish: a record is committed for each message, and then the messages are sent, each with its record's id."""

from collections.abc import Sequence

import attrs

from sqlqueue.broker import Broker
from sqlqueue.errors import PublishError
from sqlqueue.publisher import OutgoingMessage, Publisher
from sqlqueue.relay.names import Names
from sqlqueue.relay.record_ids import to_text
from sqlqueue.relay.records import Records


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
        tracked = [place for place, message in enumerate(messages) if message.destination in self.names]
        sent = [self._without_header(message) for message in messages]
        if tracked:
            ids = self._record([sent[place] for place in tracked], len(messages))
            for place, id in zip(tracked, ids, strict=True):
                headers = {**sent[place].headers, self.header: id}
                sent[place] = attrs.evolve(sent[place], headers=headers, id=id)
        self.inner.publish(sent)

    def _record(self, messages: Sequence[OutgoingMessage], count: int) -> Sequence[str]:
        try:
            with self.broker.pool.connection() as connection:
                return [to_text(id) for id in self.records.write(connection, messages)]
        except Exception as error:
            raise PublishError(
                f"{self.name}: nothing was sent, for its records could not be written to table "
                f"{self.records.spec.full_name!r}: {error}",
                dict.fromkeys(range(count), "not recorded"),
            ) from error

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
