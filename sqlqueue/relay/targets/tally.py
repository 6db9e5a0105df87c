"""What became of the messages of one publish: nothing counts as confirmed that the target has not confirmed, and
nothing that overtook an earlier message of its key."""

from collections.abc import Sequence

import attrs

from sqlqueue.errors import PublishError
from sqlqueue.publisher import OutgoingMessage

#: Why a message does not count that came behind one that was not confirmed.
BEHIND = "an earlier message of its key was not confirmed"


class Refused(Exception):  # noqa: N818 - no error of ours: it tells a publish why a message is not confirmed
    """A message was not confirmed."""


@attrs.define(eq=False)
class Tally:
    """By a message's place in the publish. For one thread at a time."""

    messages: Sequence[OutgoingMessage]
    _confirmed: set[int] = attrs.field(init=False, factory=set)
    _refused: dict[int, str] = attrs.field(init=False, factory=dict)
    _refused_keys: set[str] = attrs.field(init=False, factory=set)

    def confirm(self, place: int) -> None:
        self._confirmed.add(place)

    def refuse(self, place: int, why: str) -> None:
        self._refused.setdefault(place, why)
        key = self.messages[place].key
        if key is not None:
            self._refused_keys.add(key)

    def knows(self, place: int) -> bool:
        """Whether it was confirmed or refused."""
        return place in self._confirmed or place in self._refused

    def blocks(self, message: OutgoingMessage) -> bool:
        """Whether it may not be sent, because one of its key was refused."""
        return message.key in self._refused_keys

    def open_places(self) -> list[int]:
        """Those that may be sent: neither confirmed nor refused, nor of a key of which one was refused."""
        return [
            place for place, message in enumerate(self.messages) if not self.knows(place) and not self.blocks(message)
        ]

    def lines(self) -> list[list[int]]:
        """The open places, those of one key together and in their order; a message without a key by itself."""
        lines: dict[object, list[int]] = {}
        for place in self.open_places():
            key = self.messages[place].key
            lines.setdefault(place if key is None else key, []).append(place)
        return list(lines.values())

    def close(self, name: str, otherwise: str) -> None:
        """Raise `PublishError` unless all are confirmed; `otherwise`: why, where nothing was heard of it."""
        unconfirmed: dict[int, str] = {}
        keys: set[str] = set()
        for place, message in enumerate(self.messages):
            if place not in self._confirmed or message.key in keys:
                behind = BEHIND if message.key in keys else otherwise
                unconfirmed[place] = self._refused.get(place, behind)
                if message.key is not None:
                    keys.add(message.key)
        if unconfirmed:
            place, why = next(iter(unconfirmed.items()))
            counted = f"{len(unconfirmed)} of {len(self.messages)} messages not confirmed"
            raise PublishError(f"{name}: {counted}; message {place}: {why}", unconfirmed)
