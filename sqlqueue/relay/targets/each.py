"""Messages one by one, for targets that take them so: nothing goes behind one of its key that failed."""

from collections.abc import Callable, Mapping, Sequence

from sqlqueue.publisher import OutgoingMessage

#: Why a message was not even tried.
BEHIND = "an earlier message of its key was not confirmed"


def send_each(messages: Sequence[OutgoingMessage], send: Callable[[OutgoingMessage], str | None]) -> Mapping[int, str]:
    """Send the messages in order; those that were not confirmed, by place, with the reason that `send` returned."""
    unconfirmed: dict[int, str] = {}
    failed: set[str] = set()
    for place, message in enumerate(messages):
        why = BEHIND if message.key in failed else send(message)
        if why is None:
            continue
        unconfirmed[place] = why
        if message.key is not None:
            failed.add(message.key)
    return unconfirmed
