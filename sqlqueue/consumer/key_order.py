"""Dispatch, pure: which of the claimed rows may run now. Rows of one key run one at a time, oldest first.

Order by key where each worker claims for itself: a claim passes over the keys that are in work or wait.

Keys that wait for a failed row which does not come back to us: they go on once it was settled elsewhere.
"""

from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

import attrs

from sqlqueue.consumer.polling import PollTimer
from sqlqueue.consumer.run_handler import Work
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


@attrs.define
class Keys:
    """The keys of one queue's rows in this consumer. Its owner sees to it that one thread at a time is inside."""

    _lanes: KeyOrder[Work] = attrs.field(factory=KeyOrder)

    def pass_over(self) -> PassOver:
        """The keys that have a row in work, and those that wait for a failed row, but for that row."""
        lanes = self._lanes
        waiting = {key: blocked.id for key, blocked in lanes.failed.items() if not lanes.busy(key)}
        return PassOver([*lanes.busy_keys, *waiting], list(waiting.values()))

    def claimed(self, work: Work) -> None:
        if not self._lanes.enter(work.key, work):
            raise AssertionError(f"a row of key {work.key!r} was claimed while another is in work")

    def settled(self, work: Work) -> None:
        """A row is settled for good: the next of its key may be claimed."""
        self._lanes.leave(work.key)

    def retried(self, work: Work, until: datetime | None) -> None:
        """A row will be tried again from `until`: the later rows of its key wait for it."""
        self._lanes.hold(work.key, work.delivery.claim.id, until)

    def dropped(self, work: Work) -> None:
        """A row is out of our hands and not settled."""
        self._lanes.put_off(work.key)

    def overdue(self, now: datetime) -> Sequence[tuple[Hashable, Any]]:
        """The keys, with their failed rows, that wait for a row which was due by `now` and has not come to us."""
        return self._lanes.overdue(now)

    def unblock(self, key: Hashable) -> None:
        """The failed row that the key waited for was settled elsewhere."""
        self._lanes.unblock(key)


#: Seconds between two questions whether the failed row that a key waits for was settled elsewhere.
FREE_KEYS = 1.0


class OrdersKeys(Protocol):
    """Who keeps the order of keys."""

    def overdue(self, now: datetime) -> Sequence[tuple[Hashable, Any]]: ...

    def unblock(self, key: Hashable) -> None: ...


@attrs.define
class Freeing:
    """Asks for the failed rows of one queue's keys, now and then."""

    order: OrdersKeys
    pace: PollTimer
    _asked: float = float("-inf")

    def free(self, seconds: float, now: datetime, unfinished: Callable[[Any], bool]) -> None:
        """`seconds` is the monotonic clock's, `now` the queue's; `unfinished` asks the database for a row's id."""
        if seconds < self._asked + FREE_KEYS:
            return
        overdue = self.order.overdue(now - timedelta(seconds=FREE_KEYS))
        self._asked = seconds if overdue else self._asked
        for key, id in overdue:
            if unfinished(id):
                self.pace.due(seconds, FREE_KEYS)
            else:
                self.order.unblock(key)
