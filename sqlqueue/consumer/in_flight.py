"""Dispatch: what one queue of this consumer holds, and which of it the workers may take. Owned by one thread.

Dispatch, where a handler takes batches: the rows that may run are cut into them, one for each free worker.

What became of the rows in hand: who is settled, who was late, and who goes back. Owned by the pump's thread.

What the seats of one queue hold: rows in work, each with its connection, and those that are being settled.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from queue import Empty, SimpleQueue
from threading import Condition
from typing import Any

import attrs

from sqlqueue.consumer.key_order import Blocked, KeyOrder
from sqlqueue.consumer.run_handler import Finished, Work
from sqlqueue.consumer.settling import Report
from sqlqueue.dialect import Connection
from sqlqueue.handler import Handler
from sqlqueue.observers import Observers
from sqlqueue.outcome import Move, Settlement, Verdict
from sqlqueue.strategies.claim import NOBODY, PassOver, Turned

#: Rows for each worker that may wait behind others of their key without taking a worker's place.
WAITING_BY_KEY = 10


class InFlight:
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
        self._lanes: KeyOrder[Work] | None = KeyOrder() if by_key else None

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


@attrs.frozen(eq=False)
class FinishedBatch:
    """What became of a batch that had `size` rows when it was handed out; those that were lost before its handler
    began are left out."""

    size: int
    finished: Sequence[Finished]


class BatchInFlight(InFlight):
    """The claimed rows of one queue whose handler takes up to `batch` of them at once.

    Order by key: a batch holds one row of each key, for the next may run once that one is settled. A batch with fewer
    rows takes a worker all the same, so that no more is claimed than workers can begin. `prefetch` is rounded up to
    whole batches.
    """

    def __init__(self, *, workers: int, prefetch: int, by_key: bool, batch: int) -> None:
        super().__init__(workers=workers * batch, prefetch=-(-prefetch // batch) * batch, by_key=by_key)
        self._most_waiting = workers * max(WAITING_BY_KEY, batch)
        self._batch = batch
        self._begun: list[Work] = []
        self._places_empty = 0

    @property
    def room(self) -> int:
        return super().room - self._places_empty

    def _start(self, work: Work) -> None:
        work.leads = True
        self._begun.append(work)

    def hand_out(self) -> None:
        """Hand what may run to the workers, in batches."""
        if not self._begun:
            return
        begun, self._begun = self._begun, []
        for first in range(0, len(begun), self._batch):
            works = begun[first : first + self._batch]
            self._places_empty += self._batch - len(works)
            self.ready.put(works)

    def came_back(self, finished: Sequence[Any]) -> Iterable[Finished]:
        for batch in finished:
            self._places_empty -= self._batch - batch.size
        return [one for batch in finished for one in batch.finished]

    def _rows(self, ready: Any) -> Sequence[Work]:
        self._places_empty -= self._batch - len(ready)
        works: Sequence[Work] = ready
        return works


def hands_for(handler: Handler, *, by_key: bool) -> InFlight:
    """The hands that a handler's declaration asks for."""
    workers, prefetch = handler.workers, handler.prefetch
    if handler.batch is None:
        return InFlight(workers=workers, prefetch=prefetch, by_key=by_key)
    return BatchInFlight(workers=workers, prefetch=prefetch, by_key=by_key, batch=handler.batch)


def released(work: Work, until: datetime | None = None) -> Finished:
    """A row that goes back unhandled, claimable again from `until` (None: at once)."""
    return Finished(work, Verdict(Settlement(Move.RELEASE, due=until), "released"))


class Settlements:
    """Keeps the books of one queue: `unsettled` is what waits for the next turn."""

    def __init__(self, queue: str, hands: InFlight, notices: Observers) -> None:
        self._hands = hands
        self.report = Report(queue, notices)
        self.unsettled: list[Finished] = []

    def enter(self, finished: Finished) -> None:
        """A delivery came back from its worker; one that was taken out of hand meanwhile is told that it is late."""
        if finished.work in self._hands.held:
            self.unsettled.append(finished)
        else:
            self.report.late(finished.work)

    def post(self, finished: Iterable[Finished], turned: Turned) -> list[datetime | None]:
        """Take settled rows out of hand; when those that will be tried again fall due (None: at once)."""
        late = {id(claim): "lease_lost" for claim in turned.lost} | {id(claim): "gone" for claim in turned.gone}
        dues: list[datetime | None] = []
        for one in finished:
            reason = late.get(id(one.work.delivery.claim)) if late else None
            if reason == "lease_lost":
                self.lose(one.work)
                continue
            self._out_of_hand(one, reason, dues)
            self.report.settle(one, gone=reason is not None)
        return dues

    def _out_of_hand(self, one: Finished, gone: str | None, dues: list[datetime | None]) -> None:
        settlement = one.verdict.settlement
        if settlement.move is Move.RELEASE:
            self.put_back(self._hands.dropped(one.work))
            if settlement.due is not None:
                dues.append(settlement.due)
            return
        if settlement.move is Move.RETRY and not gone:
            self.put_back(self._hands.retried(one.work, settlement.due))
            dues.append(settlement.due)
            return
        self._hands.settled(one.work)
        if settlement.redelivers and not gone:
            dues.append(settlement.due)

    def put_back(self, works: Iterable[Work], until: datetime | None = None) -> None:
        """These rows go back with the next turn."""
        self.unsettled += [released(work, until) for work in works]

    def give_up(self) -> None:
        """Everything in hand goes back; what its handlers still do comes too late."""
        waiting = {one.work for one in self.unsettled}
        for work in self._hands.held - waiting:
            work.delivery.lose()
            self.unsettled.append(released(work))

    def lose(self, work: Work) -> None:
        """The row belongs to somebody else."""
        work.delivery.lose()
        self.report.late(work)
        self.put_back(self._hands.dropped(work))

    def drop(self, work: Work) -> None:
        """The row could not be settled: its lease ends by itself."""
        self.put_back(self._hands.dropped(work))


class RowsInWork:
    """Who takes a row out of work settles it, and says when that is done. For any thread."""

    def __init__(self) -> None:
        self._in_work: dict[Work, Connection] = {}
        self._settling = self._turning = 0
        self._extending: Sequence[Work] = ()
        self._unkept: set[Work] = set()
        self._closed = False
        self._changed = Condition()

    def __len__(self) -> int:
        return len(self._in_work) + self._settling

    @property
    def in_work(self) -> Sequence[Work]:
        return tuple(self._in_work)

    @contextmanager
    def turn(self, look: bool) -> Iterator[bool]:
        """A turn at the database; whether it may look for rows."""
        with self._changed:  # decided: whether a row may come to work
            self._turning += 1
            look = look and not self._closed
        try:
            yield look
        finally:
            with self._changed:  # decided: whether whoever waits may go on
                self._turning -= 1
                self._changed.notify_all()

    def begin(self, work: Work, connection: Connection) -> None:
        with self._changed:  # decided: the row is in work
            self._in_work[work] = connection

    def keep_no_more(self, work: Work) -> None:
        """Extend the row's lease no more; an extension under way is over by then."""
        with self._changed:  # decided: who keeps the row
            self._changed.wait_for(lambda: work not in self._extending)
            self._unkept.add(work)

    def take(self, work: Work) -> bool:
        """Take a row out of work, to settle it; False where somebody else has. An extension of its lease, which moves
        its token, is over by then."""
        with self._changed:  # decided: who settles the row
            if self._extending:
                self._changed.wait_for(lambda: work not in self._extending)
            mine = self._in_work.pop(work, None) is not None
            self._unkept.discard(work)
            self._settling += mine
            return mine

    def take_all(self, works: Sequence[Work]) -> bool:
        """The same for the rows of a batch, all of them or none."""
        with self._changed:  # decided: who settles the rows
            mine = all(work in self._in_work for work in works)
            for work in works if mine else ():
                del self._in_work[work]
                self._settling += 1
            return mine

    def done(self) -> None:
        """A row that was taken out of work is settled, or lost."""
        with self._changed:  # decided: whether whoever waits may go on
            self._settling -= 1
            self._changed.notify_all()

    @contextmanager
    def extending(self) -> Iterator[Sequence[Work]]:
        """What is in work and kept, and is not settled for the while."""
        with self._changed:  # decided: whose tokens move
            self._extending = tuple(work for work in self._in_work if work not in self._unkept)
        try:
            yield self._extending
        finally:
            with self._changed:  # decided: who may be settled
                self._extending = ()
                self._changed.notify_all()

    def close(self, timeout: float) -> Sequence[tuple[Work, Connection]]:
        """No row comes to work any more; take all that are, after what is under way, within so many seconds."""
        with self._changed:  # decided: who settles what is left
            self._closed = True
            self._changed.wait_for(lambda: not (self._turning or self._settling), timeout)
            taken = list(self._in_work.items())
            self._in_work.clear()
            self._settling += len(taken)
            return taken
