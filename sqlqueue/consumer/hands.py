"""Dispatch: what one queue of this consumer holds, and which of it the workers may take. Owned by one thread."""

from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import Any

from sqlqueue.consumer.handlers import Finished, Work
from sqlqueue.consumer.lanes import Blocked, Lanes
from sqlqueue.strategies.base import NOBODY, PassOver

#: Rows for each worker that may wait behind others of their key without taking a worker's place.
WAITING_BY_KEY = 10


class Hands:
    """The claimed rows of one queue.

    `capacity` is the number of rows that may be in work or ready to be: the workers, and `prefetch` ahead of them.
    """

    def __init__(self, *, workers: int, prefetch: int, by_key: bool) -> None:
        self.capacity = workers + prefetch
        self.ready: SimpleQueue[Any] = SimpleQueue()
        self.held: set[Work] = set()
        self.by_key = by_key
        self._waiting = 0
        self._most_waiting = workers * WAITING_BY_KEY
        self._lanes: Lanes[Work] | None = Lanes() if by_key else None

    @property
    def room(self) -> int:
        """How many more rows may be claimed."""
        beyond = max(0, self._waiting - self._most_waiting)
        return self.capacity - (len(self.held) - self._waiting) - beyond

    def blocked(self, work: Work) -> Blocked | None:
        """The failed row that holds this one back; a row whose key is in hand waits there instead."""
        lanes = self._lanes
        if lanes is None or lanes.busy(work.key):
            return None
        return lanes.blocked(work.key, work.delivery.claim.id)

    def pass_over(self) -> PassOver:
        """What the next claim leaves alone: the keys that wait for a failed row, but not that row."""
        if self._lanes is None or not self._lanes.any_blocked:
            return NOBODY
        failed = self._lanes.failed
        return PassOver(list(failed), [blocked.id for blocked in failed.values()])

    def overdue(self, now: datetime) -> Sequence[tuple[Hashable, Any]]:
        """The keys, with their failed rows, that wait for a row which was due by `now` and has not come to us."""
        return () if self._lanes is None else self._lanes.overdue(now)

    def in_order(self, works: Sequence[Work]) -> Sequence[Work]:
        """Claimed rows with those first that hold back others of their key."""
        lanes = self._lanes
        if lanes is None or not lanes.any_blocked:
            return works
        return sorted(works, key=lambda work: not lanes.holds_back(work.key, work.delivery.claim.id))

    def take(self, work: Work) -> None:
        """A row was claimed: hand it to a worker, or let it wait behind one of its key."""
        self.held.add(work)
        if self._lanes is None or self._lanes.enter(work.key, work):
            self._start(work)
        else:
            self._waiting += 1

    def _start(self, work: Work) -> None:
        work.leads = True
        self.ready.put(work)

    def hand_out(self) -> None:
        """What was taken in one go is all there: nothing, for each row was handed to a worker by itself."""

    def came_back(self, finished: Sequence[Any]) -> Iterable[Finished]:
        """What workers handed back, row by row."""
        return finished

    def settled(self, work: Work) -> None:
        """A row is settled for good: the next of its key may run."""
        self.held.discard(work)
        if self._lanes is None or not work.leads:
            return
        following = self._lanes.leave(work.key)
        if following is not None:
            self._waiting -= 1
            self._start(following)

    def retried(self, work: Work, until: datetime | None) -> Sequence[Work]:
        """A row will be tried again from `until`: the rows of its key behind it, which must go back until then."""
        self.held.discard(work)
        if self._lanes is None or not work.leads:
            return ()
        return self._stepped_back(self._lanes.hold(work.key, work.delivery.claim.id, until))

    def dropped(self, work: Work) -> Sequence[Work]:
        """A row is out of our hands and not settled: the rows of its key behind it, which must go back."""
        self.held.discard(work)
        if self._lanes is None:
            return ()
        if not work.leads:
            self._waiting -= self._lanes.forget(work.key, work)
            return ()
        return self._stepped_back(self._lanes.put_off(work.key))

    def _stepped_back(self, behind: Sequence[Work]) -> Sequence[Work]:
        self._waiting -= len(behind)
        return behind

    def unblock(self, key: Hashable) -> None:
        """The failed row that the key waited for was settled elsewhere."""
        if self._lanes is not None:
            self._lanes.unblock(key)

    def unstarted(self) -> list[Work]:
        """Take back everything that no worker has begun."""
        works = list(self._stepped_back(self._lanes.clear() if self._lanes else ()))
        try:
            while True:
                work = self.ready.get_nowait()
                if work is not None:
                    works += self._rows(work)
        except Empty:
            return works

    def _rows(self, ready: Any) -> Sequence[Work]:
        """What one worker would have taken."""
        return (ready,)
