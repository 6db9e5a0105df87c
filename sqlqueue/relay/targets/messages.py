"""What no target takes, told before anything is sent."""

from collections.abc import Callable
from typing import Any

from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay.targets.tally import Refused, Tally

#: Headers under which a target without a place of its own for them carries a message's id and key.
ID = "message-id"
KEY = "message-key"


def check_all(tally: Tally, max_bytes: int | None, also: Callable[[OutgoingMessage], object]) -> None:
    """Refuse those messages that are not made of bytes and text, that are longer than a target takes, or that `also`
    refuses."""
    for place, message in enumerate(tally.messages):
        try:
            check(message, max_bytes)
            also(message)
        except Refused as error:
            tally.refuse(place, str(error))


def check(message: OutgoingMessage, max_bytes: int | None) -> None:
    if not isinstance(message.payload, bytes):
        raise Refused(f"the payload is of type {type(message.payload).__name__}; encode it to bytes")
    if max_bytes is not None and len(message.payload) > max_bytes:
        raise Refused(
            f"the payload has {len(message.payload)} bytes, more than max_bytes={max_bytes}; send less, or raise "
            "max_bytes to what the broker takes"
        )
    for what in ("destination", "key", "id"):
        _check_text(f"the {what}", getattr(message, what))
    for name, value in message.headers.items():
        _check_text("a header's name", name, needed=True)
        _check_text(f"the header {name!r}", value, needed=True)


def _check_text(what: str, value: Any, *, needed: bool = False) -> None:
    if value is None and not needed:
        return
    if not isinstance(value, str):
        raise Refused(f"{what} is of type {type(value).__name__}; give text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused(f"{what} holds what UTF-8 cannot write: {value!r}; give other text") from None


def destination_of(message: OutgoingMessage, own: str | None, setting: str) -> str:
    """Where a message goes: its own destination, else the publisher's."""
    destination = message.destination or own
    if not destination:
        raise Refused(f"it has no destination, and the publisher has no {setting} of its own; give one of the two")
    return destination
