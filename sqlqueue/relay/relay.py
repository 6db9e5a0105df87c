"""The relay: a queue whose handler hands each row on as it is."""

from collections.abc import Callable, Mapping
from typing import Any

from sqlqueue.delivery import Delivery
from sqlqueue.errors import DeclarationError
from sqlqueue.handler import publisher_of
from sqlqueue.publisher import OutgoingMessage, Publisher
from sqlqueue.queue import Queue
from sqlqueue.roles import AFRESH, Role


def relay(
    queue: Queue,
    *,
    to: Publisher | str,
    destination: str | None = None,
    by_key: bool | None = None,
    batch: int | None = None,
    **options: Any,
) -> None:
    """Register the handler that publishes each of the queue's rows and then settles it.

    `to`: a publisher or its URL. `destination`: the target's word for where; None is the publisher's own. A message's
    payload is the stored one, byte for byte; on a table without a payload it is the row, as an object of its fields,
    without those that only the queue uses. Key, headers and id are the row's. `by_key`: the order of keys is kept, by
    default where the table has them. `batch`: up to so many rows of one claim are published at once, and those that
    were confirmed are settled. `options`: the others of `Queue.handler`.

    Raises `DeclarationError` where `to` or `destination` is something else, and what `Queue.handler` raises.
    """
    publisher_of(to, queue.broker.publisher, "to")  # a handler may do without
    if destination is not None and not isinstance(destination, str):
        raise DeclarationError(f"relay(destination={destination!r}): give text, or None for the publisher's own")
    raw = queue.spec.has(Role.PAYLOAD)
    fields = [column.field for column in queue.spec.columns if column.role not in AFRESH]

    def forward(message: Any, delivery: Delivery) -> OutgoingMessage:  # with all headers: it is no reply, but the same
        if not raw:
            values: Mapping[str, Any] = queue.spec.values(message)
            message = queue.broker.codec.encode({field: values[field] for field in fields})
        return OutgoingMessage(payload=message, destination=destination, headers=delivery.headers)

    def forward_all(messages: Any, deliveries: list[Delivery]) -> list[OutgoingMessage]:
        return [forward(message, delivery) for message, delivery in zip(messages, deliveries, strict=True)]

    function: Callable[..., Any] = forward if batch is None else forward_all
    if raw:  # the annotation that asks for it undecoded
        function.__annotations__["message" if batch is None else "messages"] = bytes if batch is None else list[bytes]
    function.__qualname__ = "relay"
    keyed = queue.spec.has(Role.PARTITION_KEY) if by_key is None else by_key
    queue.handler(by_key=keyed, batch=batch, reply_to=to, **options)(function)
