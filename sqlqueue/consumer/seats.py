"""Seats: where a delivery holds its connection, each worker claims and settles for itself, on its own one.

A worker that is done settles its row and claims the next in one round trip. Idle ones hold no connection, and one of
them at a time looks: the one that finds a row rings for the next, so that workers fill up while there is work and an
empty queue costs one look. What the seats of a queue share is decided under one lock; no SQL runs under it.
"""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from threading import Lock
from time import monotonic
from typing import Any

import attrs

from sqlqueue.consumer.bell import Bell
from sqlqueue.consumer.budget import Budget, BudgetSpent
from sqlqueue.consumer.freeing import FREE_KEYS, Freeing
from sqlqueue.consumer.handlers import Finished, Runner, Work
from sqlqueue.consumer.horizon import Horizon
from sqlqueue.consumer.inbox import LONGEST
from sqlqueue.consumer.keys import Keys
from sqlqueue.consumer.outage import Outage
from sqlqueue.consumer.pace import Pace
from sqlqueue.consumer.report import Report
from sqlqueue.consumer.seat import Seat
from sqlqueue.consumer.turning import OnStop, Workers
from sqlqueue.dialect import Connection, Trouble
from sqlqueue.strategies.base import NOBODY, Ahead, Move, PassOver, Seated

#: Seconds to wait for one of the pool's connections.
PATIENCE = 10.0

#: Seconds between two looks at what is still under way when a stop hurries.
LOOK_UP = 0.01


@attrs.define(eq=False)
class Shared:
    """What a queue's seats work with. `hides`: whether a row that asks to wait can be hidden for so long.
    `frees_others`: whether rows wait for others to be settled."""

    queue: str
    strategy: Seated
    budget: Budget
    now: Callable[[], datetime]
    classify: Callable[[BaseException], Trouble]
    runner: Runner
    hides: bool
    one_at_a_time: bool
    frees_others: bool
    certain: Callable[[], bool]


class Seats:
    """Turns by seats: the claims, the rhythm and the books that the workers of one queue share."""

    def __init__(self, shared: Shared, pace: Pace, *, workers: int, by_key: bool) -> None:
        self.shared = shared
        self.report = Report(shared.queue, shared.runner.notices)
        self.outage = Outage(shared.queue)
        self.fatal: BaseException | None = None
        self.on_idle: Callable[[], None] | None = None
        self.turnstile = Lock()  # held over a look, where looks that run together would collide
        self.looks: set[Seat] = set()  # under way
        self._pace, self._horizon = pace, Horizon()
        self._keys = Keys() if by_key else None
        self._freeing = Freeing(self._keys, pace) if self._keys else None
        self._workers = Workers(shared.queue, workers)
        self._lock = Lock()
        self._bell = Bell()
        self._looking: Seat | None = None
        self._wakes, self._looked = 0, -1
        self._in_work: dict[Work, Connection] = {}
        self._settling = 0
        self._stopping = self._giving_up = False

    # -- from other threads -----------------------------------------------------------------------------------

    def start(self, executor: ThreadPoolExecutor, on_stop: OnStop) -> None:
        self._workers.start(executor, self._work, on_stop)

    def wake(self) -> None:
        with self._lock:  # decided: the next look comes now
            self._wakes += 1
            self._pace.wake(monotonic())
            self._bell.ring()

    def stop(self) -> None:
        self._stopping = True
        self._bell.ring_for(self._workers.count)

    def give_up(self) -> None:
        self._giving_up = True
        self.stop()

    def join(self, timeout: float) -> bool:
        self.shared.budget.rouse()
        if self._giving_up:  # handlers are not waited for, only turns that are under way
            self._give_back()
            return self._quiet(timeout)
        return not self._workers.running(timeout)

    def _quiet(self, timeout: float) -> bool:
        until = monotonic() + timeout
        while self.held or self.looks:
            if monotonic() >= until:
                return False
            self._workers.running(LOOK_UP)
        return True

    def running(self, timeout: float) -> int:
        return self._workers.running(timeout)

    @property
    def stopping(self) -> bool:
        return self._stopping or self.fatal is not None

    @property
    def idle(self) -> bool:
        return not self.held and not self._looking and self._looked == self._wakes

    @property
    def held(self) -> int:
        return len(self._in_work) + self._settling

    # -- a worker's loop --------------------------------------------------------------------------------------

    def _work(self, on_stop: OnStop) -> None:
        shared = self.shared
        seat = Seat(self, on_stop)
        while self._admitted(seat):
            try:
                with shared.budget.seat(shared.queue, PATIENCE, lambda: self.stopping) as connection:
                    seat.sit(connection)
            except BudgetSpent:
                continue  # the pool is short: fewer rows are in work at once
            except Exception as error:  # noqa: BLE001 - the loop's edge: whatever went wrong is classified
                self._trouble(error, on_stop)
            finally:
                self._rest(seat)

    def _admitted(self, seat: Seat) -> bool:
        """Wait until this worker is the one to look; False where it is to end."""
        while not self.stopping:
            with self._lock:  # decided: who looks
                wait = None if self._looking else self._pace.wait(monotonic())
                if wait == 0.0:
                    self._looking = seat
                    return True
                self._bell.rests()
            self._bell.wait(min(wait, LONGEST) if wait is not None else LONGEST)
            with self._lock:  # decided: who can be rung for
                self._bell.rises()
        return False

    # -- a seat's turns ---------------------------------------------------------------------------------------

    def may_go_on(self) -> bool:
        """Whether a seat that is done may claim again at once, on the connection that it has."""
        if self.stopping or self.shared.budget.slots.wanted(self.shared.queue):
            return False
        return not self._pace.held_back(monotonic())

    def begin_look(self) -> tuple[int, PassOver]:
        """A look begins: the wake-ups that it sees, and the rows that it leaves alone."""
        with self._lock:  # decided: what this look knows
            self._pace.begin(monotonic())
            return self._wakes, self._keys.pass_over() if self._keys else NOBODY

    def free_keys(self, unfinished: Callable[[Any], bool]) -> None:
        if self._freeing is not None:
            self._freeing.free(monotonic(), self.shared.now(), unfinished)

    def found(self, work: Work, connection: Connection, seat: Seat) -> None:
        """A look found a row: there may be more, for another worker."""
        with self._lock:  # decided: the row is in work, and who looks next
            self._in_work[work] = connection
            if self._keys is not None:
                self._keys.claimed(work)
            self._pace.full(monotonic())
            self._looking = None if self._looking is seat else self._looking
            self._bell.ring()
        self._works_again()
        self.shared.runner.notices.tell("claimed", work.delivery)

    def found_nothing(self, ahead: Ahead, wakes: int) -> None:
        with self._lock:  # decided: when somebody looks again
            due_in = self._horizon.due_in(ahead, self.shared.now())
            now = monotonic()
            self._pace.short(now, due_in=due_in, hidden=ahead.hidden, certain=self.shared.certain())
            if self._pace.wait(now) != 0.0:
                self._looked = wakes
        self._works_again()
        self.shared.runner.notices.tell("looked")

    def more(self) -> None:
        """A seat gave its connection up although there may be more rows."""
        with self._lock:  # decided: the next look comes now
            self._pace.wake(monotonic())

    def _rest(self, seat: Seat) -> None:
        """A worker is done, whatever it found."""
        with self._lock:  # decided: who looks next
            self._looking = None if self._looking is seat else self._looking
            if self._looking is None and self._pace.wait(monotonic()) == 0.0:
                self._bell.ring()
        if self.on_idle is not None and self.idle:
            self.on_idle()

    @property
    def held_unseen(self) -> int:
        """Rows in work that a look takes for due: those that it does not pass over by their keys."""
        in_work = tuple(self._in_work)
        return len(in_work) if self._keys is None else sum(work.key is None for work in in_work)

    # -- settling ---------------------------------------------------------------------------------------------

    def take_back(self, work: Work) -> bool:
        """A handler is done; False where its row was given back meanwhile."""
        with self._lock:  # decided: who settles the row
            mine = self._in_work.pop(work, None) is not None
            self._settling += mine
        if not mine:
            self.report.late(work)
        return mine

    def settled(self, one: Finished, *, gone: bool) -> None:
        settlement = one.verdict.settlement
        again = settlement.move is Move.RETRY and not gone
        with self._lock:  # decided: what the row's key, and the next look, wait for
            self._settling -= 1
            if self._keys is not None and again:
                self._keys.retried(one.work, settlement.due)
            elif self._keys is not None:
                self._keys.dropped(one.work) if settlement.move is Move.RELEASE else self._keys.settled(one.work)
            if again:
                self._due(settlement.due)
            elif self.shared.frees_others:
                self._pace.wake(monotonic())
        self._works_again()
        self.report.settle(one, gone=gone)

    def _due(self, due: datetime | None) -> None:
        now, due_in = monotonic(), 0.0 if due is None else (due - self.shared.now()).total_seconds()
        if due is not None and not self.shared.hides:
            self._pace.pause(now, min(due_in, self._pace.poll))
            self.report.cannot_hide(due_in)
            due_in = 0.0
        self._looked = -1 if due_in <= 0 else self._looked
        self._pace.due(now, due_in)
        if self._keys is not None:
            self._pace.due(now, due_in + FREE_KEYS)

    def lose(self, work: Work) -> None:
        """The row could not be settled: it returns to the queue as it is."""
        work.delivery.lose()
        with self._lock:  # decided: it is out of hand
            self._settling -= 1
            if self._keys is not None:
                self._keys.dropped(work)
        self.report.late(work)

    def _give_back(self) -> None:
        """Give back what handlers are still at; what they still do comes too late."""
        with self._lock:  # decided: who settles these rows
            taken = list(self._in_work.items())
            self._in_work.clear()
            self._settling += len(taken)
        for work, connection in taken:
            Seat(self, lambda error: None).give_back(work, connection)

    # -- trouble ----------------------------------------------------------------------------------------------

    def _trouble(self, error: Exception, on_stop: OnStop) -> None:
        shared = self.shared
        trouble = shared.classify(error)
        with self._lock:  # decided: when the next try is; those that fail together fail once
            if self.outage.lasts and self._pace.held_back(monotonic()) and trouble is not Trouble.CLOSED:
                return
            permanent = trouble is Trouble.PERMANENT
            pause = self._pace.trouble(monotonic(), spread=random.random(), permanent=permanent)  # noqa: S311 - jitter
        self.outage.begin(trouble, error, pause)
        shared.runner.notices.tell("trouble", detail=self.outage.error)
        if trouble is Trouble.CLOSED and self.fatal is None:
            self.fatal = error
            on_stop(error)

    def _works_again(self) -> None:
        if not self.outage.lasts:
            return
        with self._lock:  # decided: one of those who see it tells
            self._pace.recovered()
            over = self.outage.end()
        if over:
            self.shared.runner.notices.tell("recovered")
