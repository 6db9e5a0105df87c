"""Key order, pure: rows of one key run one at a time, oldest first, and behind one that failed.

A dispatcher lets claimed rows wait behind others of their key. Connection workers claim for themselves: their claims
pass over the keys that are in work or that wait for a failed row.
"""

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

import attrs

from sqlqueue.consumer.polling import PollTimer
from sqlqueue.strategies.claim import PassOver

W = TypeVar("W")


@attrs.define
class Blocked:
    """A key whose row failed: the later rows of the key stay behind it until it is settled for good."""

    id: Hashable
    until: datetime | None


@attrs.define
class KeyOrder(Generic[W]):
    """Claimed rows by key, for one consumer.

    A row without a key (None) has no order. `W` is whatever stands for a row.
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

    def pass_over(self) -> PassOver:
        """For a claim that must take no second row of a key: the keys in flight, and those that wait for a failed row,
        but not that row."""
        failed = {key: blocked.id for key, blocked in self._blocked.items() if key not in self._waiting}
        return PassOver([*self._waiting, *failed], list(failed.values()))

    def overdue(self, now: datetime) -> Sequence[tuple[Hashable, Any]]:
        """The keys, with their failed rows, that wait for a row which was due by `now` and was not claimed here."""
        return [
            (key, blocked.id)
            for key, blocked in self._blocked.items()
            if not self.busy(key) and (blocked.until is None or blocked.until <= now)
        ]

    def busy(self, key: Hashable) -> bool:
        """Whether a row of this key is in flight."""
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
        behind = self._waiting.get(key)
        if behind is None:
            self._waiting[key] = deque()
            return True
        behind.append(work)
        return False

    def leave(self, key: Hashable) -> W | None:
        """The running row of this key was settled for good: the next of the key, which may run now, or None."""
        if key is None:
            return None
        self._blocked.pop(key, None)
        behind = self._waiting[key]
        if behind:
            return behind.popleft()
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
        behind = self._waiting.get(key, deque())
        if work not in behind:
            return False
        behind.remove(work)
        return True

    def unblock(self, key: Hashable) -> None:
        """The row that held the key back was settled elsewhere."""
        self._blocked.pop(key, None)

    def clear(self) -> list[W]:
        """Everything that waits; afterwards nothing does."""
        waiting = [work for behind in self._waiting.values() for work in behind]
        for behind in self._waiting.values():
            behind.clear()
        return waiting


#: Seconds between two questions whether a failed row was settled elsewhere.
FREE_KEYS = 1.0


class OrdersKeys(Protocol):
    """Who keeps the order of keys."""

    def overdue(self, now: datetime) -> Sequence[tuple[Hashable, Any]]: ...

    def unblock(self, key: Hashable) -> None: ...


@attrs.define
class BlockedKeys:
    """Unblocks keys whose failed row was settled elsewhere: it is due, is not claimed here, and is finished."""

    order: OrdersKeys
    timer: PollTimer
    _asked: float = float("-inf")

    def check(self, seconds: float, now: datetime, unfinished: Callable[[Any], bool]) -> None:
        """Ask, where it is time to. `seconds` is the monotonic clock's, `now` the queue's; `unfinished` asks the
        database about a row by its id."""
        if seconds < self._asked + FREE_KEYS:
            return
        overdue = self.order.overdue(now - timedelta(seconds=FREE_KEYS))
        self._asked = seconds if overdue else self._asked
        for key, id in overdue:
            if unfinished(id):
                self.timer.due(seconds, FREE_KEYS)
            else:
                self.order.unblock(key)
