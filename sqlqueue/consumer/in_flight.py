"""What is in flight: the rows that a dispatcher has claimed and not settled yet, which of them may run, and when their
leases must be extended."""

from collections.abc import Collection, Hashable, Iterable, Sequence
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import Any

import attrs

from sqlqueue.consumer.key_order import KeyOrder
from sqlqueue.consumer.polling import NEVER
from sqlqueue.consumer.run_handler import RELEASED, Finished, Work
from sqlqueue.outcome import Move
from sqlqueue.strategies.claim import NOBODY, Claim, PassOver

#: Rows for each worker that may wait behind others of their key without taking a worker's place.
WAITING_BY_KEY = 10

#: What a worker took, and what became of those of its rows that were not lost before.
Returned = tuple[Sequence[Work], Sequence[Finished]]


class InFlight:
    """The rows that one dispatcher has claimed and not settled. Its thread owns them; workers use `ready` only.

    Workers take up to `batch` rows at once from `ready`, where None says that there are no more. `capacity`: rows that
    workers may have or find there: a batch for each worker, and `prefetch` in whole batches ahead of them. A batch with
    fewer rows takes a worker all the same, so that no more is claimed than workers can begin.

    `held`: all rows in flight. `unsettled`: those that wait to be settled. `begun`: those that may run and are handed
    out next. `room`: how many more rows may be claimed. By key, a batch holds one row of each key, for the next may run
    once that one is settled.
    """

    def __init__(self, *, workers: int, prefetch: int, by_key: bool, batch: int = 1) -> None:
        self.capacity = self.room = workers * batch + -(-prefetch // batch) * batch
        self.ready: SimpleQueue[Sequence[Work] | None] = SimpleQueue()
        self.held: set[Work] = set()
        self.unsettled: list[Finished] = []
        self.begun: list[Work] = []
        self.by_key = by_key
        self._batch = batch
        self._places_empty = 0  # in batches that are handed out
        self._waiting = 0  # behind others of their key
        self._most_waiting = workers * max(WAITING_BY_KEY, batch)
        self._key_order: KeyOrder[Work] = KeyOrder()

    def claimed(self, works: Sequence[Work]) -> Sequence[Work]:
        """Take claimed rows in; those of them that stay. A row whose key waits for a failed one goes back: its key
        failed in the very turn that claimed it."""
        if not self.by_key:
            self.held.update(works)
            self.begun += works
            self._count()
            return works
        order = self._key_order
        if order.any_blocked:  # the failed row itself comes before others of its key
            works = sorted(works, key=lambda work: not order.holds_back(work.key, work.delivery.claim.id))
        stay = []
        for work in works:
            self.held.add(work)
            if not order.busy(work.key) and order.blocked(work.key, work.delivery.claim.id) is not None:
                self._put_back([work])
                continue
            stay.append(work)
            if order.enter(work.key, work):
                self._start(work)
            else:
                self._waiting += 1
        self._count()
        return stay

    def hand_out(self) -> None:
        """Hand what may run to the workers, in batches."""
        begun, self.begun = self.begun, []
        for first in range(0, len(begun), self._batch):
            works = begun[first : first + self._batch]
            self._places_empty += self._batch - len(works)
            self.ready.put(works)
        self._count()

    def came_back(self, returned: Iterable[Returned]) -> Sequence[Finished]:
        """Workers are done with these rows, which are to be settled now; those that are not in flight any more."""
        late: list[Finished] = []
        for works, finished in returned:
            self._places_empty -= self._batch - len(works)
            for one in finished:
                (self.unsettled if one.work in self.held else late).append(one)
        self._count()
        return late

    def settled(self, finished: Sequence[Finished], gone: Collection[Claim] = ()) -> list[datetime | None]:
        """These rows are settled, `gone` those that were not there any more; when those that are delivered again fall
        due (None: at once)."""
        dues: list[datetime | None] = []
        for one in finished:
            work, settlement = one.work, one.verdict.settlement
            move = settlement.move
            if move is Move.RELEASE:
                self.drop(work)
                if settlement.due is not None:
                    dues.append(settlement.due)
                continue
            if move in (Move.RETRY, Move.ADVANCE) and work.delivery.claim not in gone:
                dues.append(settlement.due)
                if move is Move.RETRY:
                    self._hold_back(work, settlement.due)
                    continue
            self.held.discard(work)
            if self.by_key and work.leads:
                following = self._key_order.leave(work.key)
                if following is not None:
                    self._waiting -= 1
                    self._start(following)
        self._count()
        return dues

    def drop(self, work: Work) -> None:
        """A row is not ours any more, and not settled: the rows of its key behind it go back as well."""
        self.held.discard(work)
        if self.by_key and work.leads:
            self._step_back(self._key_order.put_off(work.key))
        elif self.by_key:
            self._waiting -= self._key_order.forget(work.key, work)
        self._count()

    def _hold_back(self, work: Work, until: datetime | None) -> None:
        """A row is tried again from `until`: the rows of its key behind it go back until then."""
        self.held.discard(work)
        if self.by_key and work.leads:
            self._step_back(self._key_order.hold(work.key, work.delivery.claim.id, until))

    def put_back_unstarted(self) -> None:
        """Everything that no worker has begun goes back."""
        if self.by_key:
            self._step_back(self._key_order.clear())
        try:
            while True:
                works = self.ready.get_nowait()
                if works is not None:
                    self._places_empty -= self._batch - len(works)
                    self._put_back([work for work in works if work in self.held])
        except Empty:
            self._count()

    def put_back_all(self) -> None:
        """Everything in flight goes back; what its handlers still do comes too late."""
        works = self.to_extend()
        for work in works:
            work.delivery.lose()
        self._put_back(works)

    def to_extend(self) -> Sequence[Work]:
        """The rows whose leases are needed: all but those that wait to be settled."""
        return list(self.held - {one.work for one in self.unsettled})

    # -- key order --------------------------------------------------------------------------------------------

    def pass_over(self) -> PassOver:
        """What the next claim leaves alone: the keys that wait for a failed row, but not that row."""
        if not self.by_key or not self._key_order.any_blocked:
            return NOBODY
        failed = self._key_order.failed
        return PassOver(list(failed), [blocked.id for blocked in failed.values()])

    def overdue(self, now: datetime) -> Sequence[tuple[Hashable, Any]]:
        """The keys, with their failed rows, that wait for a row which was due by `now` and was not claimed here."""
        return self._key_order.overdue(now)

    def unblock(self, key: Hashable) -> None:
        """The failed row that the key waited for was settled elsewhere."""
        self._key_order.unblock(key)

    # -- both -------------------------------------------------------------------------------------------------

    def _start(self, work: Work) -> None:
        work.leads = True
        self.begun.append(work)

    def _step_back(self, behind: Sequence[Work]) -> None:
        self._waiting -= len(behind)
        self._put_back(behind)

    def _put_back(self, works: Iterable[Work]) -> None:
        """These rows go back with the next turn."""
        self.unsettled += [Finished(work, RELEASED) for work in works]

    def _count(self) -> None:
        beyond = max(0, self._waiting - self._most_waiting)
        self.room = self.capacity - (len(self.held) - self._waiting) - beyond - self._places_empty


@attrs.define
class LeaseTimer:
    """One instant for all leases of a queue: half a lease after the oldest of them was written. `at` is that instant:
    `inf` where nothing is held.

    Leases written meanwhile are extended with the others, a little early: one statement for all of them.
    """

    lease: float
    at: float = attrs.field(default=NEVER, init=False)

    def written(self, now: float) -> None:
        """Leases were written, by a claim or an extension."""
        if self.at == NEVER:
            self.at = now + self.lease / 2

    def wait(self, now: float) -> float | None:
        """Seconds until the next extension; None where nothing is held."""
        return None if self.at == NEVER else max(0.0, self.at - now)

    def failed(self, now: float) -> None:
        """An extension failed: the next try comes well before the leases end."""
        self.at = now + self.lease / 8

    def extended(self, now: float, held: bool) -> None:
        """An extension went out at `now`; `held`: whether leases are still held."""
        self.at = now + self.lease / 2 if held else NEVER
