"""Replies: what a handler returns is published, and confirmed, before its row is settled."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import attrs

from sqlqueue.codec import Codec
from sqlqueue.consumer.run_handler import Call, flat, one_per_row
from sqlqueue.delivery import Delivery
from sqlqueue.errors import EncodeError, PublishError
from sqlqueue.handler import Handler
from sqlqueue.outcome import Retry
from sqlqueue.publisher import OutgoingMessage, Publisher
from sqlqueue.queue import Queue


def replying(queue: Queue, handler: Handler, call: Call) -> Call:
    """The handler's call as one that publishes what it returns and returns an outcome; the call itself where the
    handler does not reply."""
    to = handler.reply_to
    if to is None:
        return call
    publisher = queue.broker.publisher(to) if isinstance(to, str) else to
    replies = Replies(call, publisher, queue.broker.codec)
    return replies.to_one if handler.batch is None else replies.to_batch


@attrs.frozen
class Replies:
    """A handler and where its replies go. A failure to publish is raised, or stands for the row's outcome."""

    _call: Call
    _publisher: Publisher
    _codec: Codec

    def to_one(self, message: Any, delivery: Delivery) -> Any:
        reply = self._call(message, delivery)
        if reply is None or isinstance(reply, BaseException):
            return reply
        messages = self._messages(reply, delivery)
        if delivery.lost:  # whoever has the row now publishes it, and this one would come behind that
            return Retry()
        if messages:
            self._publisher.publish(messages)
        return None

    def to_batch(self, messages: Any, deliveries: Sequence[Delivery]) -> Sequence[Any]:
        returned = self._call(messages, list(deliveries))
        replies = one_per_row(returned, len(deliveries), "reply or outcome")
        outcomes: list[Any] = []
        outgoing: list[OutgoingMessage] = []
        rows: list[int] = []  # of each outgoing message
        for row, (reply, delivery) in enumerate(zip(replies, deliveries, strict=True)):
            outcome, made = self._prepared(reply, delivery)
            outcomes.append(outcome)
            outgoing += made
            rows += [row] * len(made)
        if not outgoing:
            return outcomes
        for place, error in self._publish(outgoing, alone=len(set(rows)) == len(outcomes)).items():
            outcomes[rows[place]] = error
        return outcomes

    def _prepared(self, reply: Any, delivery: Delivery) -> tuple[Any, Sequence[OutgoingMessage]]:
        """The row's outcome so far, and what is to be published before that may count."""
        if reply is None or isinstance(reply, BaseException):
            return reply, ()
        if delivery.lost:
            return Retry(), ()
        try:
            return None, self._messages(reply, delivery)
        except Exception as error:  # noqa: BLE001 - a codec of the user's may raise anything, and keeps no other row
            return error, ()

    def _publish(self, outgoing: Sequence[OutgoingMessage], *, alone: bool) -> Mapping[int, Exception]:
        """Publish a batch's messages at once; those that failed, by place. `alone`: every row has some, so that the
        error which failed all of them is the batch's and is raised."""
        try:
            self._publisher.publish(outgoing)
        except Exception as error:
            unconfirmed = _unconfirmed(error, len(outgoing))
            if alone and len(unconfirmed) == len(outgoing):
                raise
            return {place: _failure(outgoing[place], why, error) for place, why in unconfirmed.items()}
        return {}

    def _messages(self, reply: Any, delivery: Delivery) -> Sequence[OutgoingMessage]:
        """The messages of a row's reply, in order, with what they leave open filled in from its delivery."""
        replies = list(flat(reply))
        several = len(replies) > 1
        return [
            self._filled(one, delivery, f"-{number}" if several else "") for number, one in enumerate(replies, start=1)
        ]

    def _filled(self, reply: Any, delivery: Delivery, suffix: str) -> OutgoingMessage:
        if not isinstance(reply, OutgoingMessage):
            reply = OutgoingMessage(payload=reply if isinstance(reply, bytes) else self._codec.encode(reply))
        _check(reply)
        return OutgoingMessage(
            payload=reply.payload,
            destination=reply.destination,
            id=_text_of_id(delivery.id) + suffix if reply.id is None else reply.id,
            key=_text_of_key(delivery.key) if reply.key is None else reply.key,
            headers=delivery.headers_of_reply(reply.headers),
        )


def _check(message: OutgoingMessage) -> None:
    """`EncodeError` for what no target could take."""
    payload: Any = message.payload
    if not isinstance(payload, bytes):
        raise EncodeError(f"an outgoing message's payload is {payload!r:.200}; give bytes")
    for name in ("destination", "key", "id"):
        value = getattr(message, name)
        if value is not None and not isinstance(value, str):
            raise EncodeError(f"an outgoing message's {name} is {value!r:.200}; give text")
    headers: Mapping[Any, Any] = message.headers
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise EncodeError(f"an outgoing message's header {name!r:.200} is {value!r:.200}; give text as both")


def _text_of_key(key: Any) -> str | None:
    if key is None or isinstance(key, str):
        return key
    if isinstance(key, int | UUID) and not isinstance(key, bool):
        return str(key)
    raise EncodeError(
        f"the row's key is {key!r:.200}, of type {type(key).__name__}; a message's key is made of text, a whole number "
        "or a UUID: return an OutgoingMessage with a key of its own"
    )


def _text_of_id(id: Any) -> str:
    return id.hex() if isinstance(id, bytes) else str(id)


def _unconfirmed(error: Exception, count: int) -> Mapping[int, str]:
    """Which of so many messages failed, and why: all of them, unless the error names others of these."""
    named = error.unconfirmed if isinstance(error, PublishError) else {}
    known = {place: why for place, why in named.items() if place in range(count)}
    return known or dict.fromkeys(range(count), str(error))


def _failure(message: OutgoingMessage, why: str, error: Exception) -> PublishError:
    failure = PublishError(f"message {message.id} was not confirmed: {why}", {0: why})
    failure.__cause__ = error
    return failure
