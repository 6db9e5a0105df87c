"""What a relay sends, and the border to what it sends to: a broker, another table, a test's memory."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs


@attrs.frozen(kw_only=True)
class OutgoingMessage:
    """A message on its way out.

    `payload`: bytes, as they are sent. `destination`: the target's word for where, such as a topic, a queue, a subject
    or a stream; None is the publisher's own. `key`: what keeps messages in order, text; None where order is not asked
    for. `headers`: text by text. `id`: the message id, by which a consumer can skip what it has seen; None has none.
    """

    payload: bytes
    destination: str | None = None
    key: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)
    id: str | None = None


class Publisher(Protocol):
    """Sends messages to one target. For any thread; connects at first use, and again by itself after an outage."""

    @property
    def name(self) -> str:
        """Where it sends to, without password or other secrets, for people to read."""
        ...

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """Send the messages, those of one key in their order, and return when the target has confirmed all of them.

        Raises `PublishError`, with those in its `unconfirmed` that were not confirmed; what is not there was, unless it
        is empty: then none was. Nothing is sent behind a message of its key that is known to have failed. Bounded in
        time. Messages that were not confirmed may have arrived all the same.
        """
        ...

    def close(self) -> None:
        """Send nothing more, and give back what is held. May be called twice."""
        ...
