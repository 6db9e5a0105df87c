"""Dispatch, pure: which of the claimed rows may run now. Rows of one key run one at a time, oldest first."""

from collections import deque
from collections.abc import Collection, Hashable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar

import attrs

W = TypeVar("W")


@attrs.define
class Blocked:
    """A key whose row failed: the later rows of the key stay behind it until it is settled for good."""

    id: Hashable
    until: datetime | None


@attrs.define
class Lanes(Generic[W]):
    """Claimed rows by key, for one consumer.

    A row without a key (None) has no order. `W` is whatever stands for a row; it is told by its id.
    """

    _waiting: dict[Hashable, deque[W]] = attrs.field(factory=dict)
    _blocked: dict[Hashable, Blocked] = attrs.field(factory=dict)

    @property
    def any_blocked(self) -> bool:
        return bool(self._blocked)

    @property
    def failed(self) -> Mapping[Hashable, Blocked]:
        """The keys that wait for a failed row, and that row."""
        return self._blocked

    @property
    def busy_keys(self) -> Collection[Hashable]:
        """The keys that have a row in hand."""
        return self._waiting.keys()

    def overdue(self, now: datetime) -> Sequence[tuple[Hashable, Any]]:
        """The keys, with their failed rows, that wait for a row which was due by `now` and has not come to us."""
        return [
            (key, blocked.id)
            for key, blocked in self._blocked.items()
            if not self.busy(key) and (blocked.until is None or blocked.until <= now)
        ]

    def busy(self, key: Hashable) -> bool:
        """Whether a row of this key is in hand."""
        return key in self._waiting

    def holds_back(self, key: Hashable, id: Hashable) -> bool:
        """Whether this is the failed row that its key waits for."""
        blocked = self._blocked.get(key)
        return blocked is not None and blocked.id == id

    def blocked(self, key: Hashable, id: Hashable) -> Blocked | None:
        """What holds this row of this key back, unless it is the failed row itself."""
        blocked = self._blocked.get(key)
        return None if blocked is None or blocked.id == id else blocked

    def enter(self, key: Hashable, work: W) -> bool:
        """Take a claimed row in; True where it may run now, False where it waits behind one of its key."""
        if key is None:
            return True
        line = self._waiting.get(key)
        if line is None:
            self._waiting[key] = deque()
            return True
        line.append(work)
        return False

    def leave(self, key: Hashable) -> W | None:
        """The running row of this key was settled for good: the next of the key, which may run now, or None."""
        if key is None:
            return None
        self._blocked.pop(key, None)
        line = self._waiting[key]
        if line:
            return line.popleft()
        del self._waiting[key]
        return None

    def hold(self, key: Hashable, id: Hashable, until: datetime | None) -> Sequence[W]:
        """The running row of this key will be tried again: the rows behind it, which must go back as well."""
        if key is None:
            return ()
        self._blocked[key] = Blocked(id, until)
        return tuple(self._waiting.pop(key))

    def put_off(self, key: Hashable) -> Sequence[W]:
        """The running row of this key left unsettled: the rows behind it, which must go back as well."""
        return () if key is None else tuple(self._waiting.pop(key))

    def forget(self, key: Hashable, work: W) -> bool:
        """A row that waits behind one of its key is not ours any more; whether it waited."""
        line = self._waiting.get(key, deque())
        if work not in line:
            return False
        line.remove(work)
        return True

    def unblock(self, key: Hashable) -> None:
        """The row that held the key back was settled elsewhere."""
        self._blocked.pop(key, None)

    def clear(self) -> list[W]:
        """Everything that waits; afterwards nothing does."""
        waiting = [work for line in self._waiting.values() for work in line]
        for line in self._waiting.values():
            line.clear()
        return waiting
