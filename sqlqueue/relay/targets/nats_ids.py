"""Which message is which to a stream of NATS': of those with one id it stores the first, and confirms all."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import attrs

from sqlqueue.publisher import OutgoingMessage

#: Messages in doubt that are remembered.
MOST = 10_000


def stream_id(message: OutgoingMessage, subject: str) -> str | None:
    """The message's id with a digest of all that it says and where; None for one without an id.

    Ids count rows: of another table too, and a stream knows but one kind of id for all its subjects. By the id alone it
    would drop that table's event and confirm it.
    """
    if message.id is None:
        return None
    about = json.dumps([subject, message.key, sorted(message.headers.items())])
    return f"{message.id}-{blake2b(about.encode() + b'/' + message.payload, digest_size=16).hexdigest()}"


@attrs.define
class InDoubt:
    """The ids of messages that were sent and not confirmed: those that may be there when they are sent again."""

    _ids: dict[str | None, None] = attrs.field(factory=dict)

    @contextmanager
    def sending(self, id: str | None) -> Iterator[bool]:
        """Around a send, which raises unless it is confirmed; whether the message may be there already."""
        try:
            yield id in self._ids
        except BaseException:  # a cancellation too
            self._add(id)
            raise
        self._ids.pop(id, None)

    def _add(self, id: str | None) -> None:
        self._ids[id] = None
        while len(self._ids) > MOST:
            del self._ids[next(iter(self._ids))]
