"""What the seats of one queue have in common, decided at its start.

Seats: where a delivery holds its connection, each worker claims and settles for itself, on its own one.

A worker that is done settles its row and claims the next in one round trip. Idle ones hold no connection, and one of
them at a time looks: the one that finds a row rings for the next, so that workers fill up while there is work and an
empty queue costs one look. What the seats of a queue share is decided under one lock; no SQL runs under it.
"""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from threading import Lock
from time import monotonic
from typing import Any

import attrs

from sqlqueue.consumer.budget import Budget, BudgetSpent
from sqlqueue.consumer.connection_worker import PATIENCE, BatchConnectionWorker, ConnectionWorker
from sqlqueue.consumer.dispatcher import LONGEST
from sqlqueue.consumer.health import Outage
from sqlqueue.consumer.in_flight import RowsInWork
from sqlqueue.consumer.key_order import FREE_KEYS, Freeing, Keys
from sqlqueue.consumer.leases import LeaseExtender
from sqlqueue.consumer.polling import SOON, BegunLook, IdleWorkers, Looks, NextDue, PollTimer
from sqlqueue.consumer.run_handler import Finished, Runner, Work
from sqlqueue.consumer.settling import Report
from sqlqueue.consumer.workers import OnStop, WorkerThreads
from sqlqueue.dialect import Connection, Trouble
from sqlqueue.outcome import Move, Settlement
from sqlqueue.sql import Begin
from sqlqueue.strategies.claim import NOBODY, Ahead, ConnectionStrategy


@attrs.define(eq=False)
class Shared:
    """What a queue's seats work with.

    `hides`: whether a row that asks to wait can be hidden for so long. `frees_others`: whether rows wait for others
    to be settled. `settles_first`: whether a row must be settled before another is looked for, since a look would
    end the handler's transaction. `transactional`: whether handlers write in their delivery's transaction, which
    `begin` opens; None where the claim's own is the handler's. `lease`: seconds that it lasts, where one holds the
    rows as well. `one_writer`: whether such a transaction keeps all others from writing, those who extend leases as
    well. `by_key`: whether this consumer keeps the order of keys. `batch`: the most rows that the handler takes at
    once, 0 where it takes them one by one.
    """

    queue: str
    strategy: ConnectionStrategy
    budget: Budget
    now: Callable[[], datetime]
    classify: Callable[[BaseException], Trouble]
    runner: Runner
    hides: bool
    one_at_a_time: bool
    frees_others: bool
    certain: Callable[[], bool]
    settles_first: bool = False
    transactional: bool = False
    lease: float | None = None
    one_writer: bool = False
    begin: Begin | None = None
    by_key: bool = False
    batch: int = 0


#: Seconds that a broker's close waits for claims and settlements under way.
LAST_SETTLEMENT = 5.0


class WorkerGroup:
    """Turns by seats: the claims, the rhythm and the books that the workers of one queue share."""

    def __init__(self, shared: Shared, pace: PollTimer, *, workers: int, by_key: bool) -> None:
        self.shared = shared
        self.report = Report(shared.queue, shared.runner.notices)
        self.outage = Outage(shared.queue)
        self.fatal: BaseException | None = None
        self.on_idle: Callable[[], None] | None = None
        self.turnstile = Lock()  # held over a look, where looks that run together would collide
        self._pace, self._next_due = pace, NextDue()
        self._keys = Keys() if by_key else None
        self._freeing = Freeing(self._keys, pace) if self._keys else None
        self._workers = WorkerThreads(shared.queue, workers)
        self._lock = Lock()
        self._bell = IdleWorkers()
        self._looks = Looks()
        self.in_hand = RowsInWork()
        self._stopping = self._giving_up = False
        self.keeping: LeaseExtender | None = None

    # -- from other threads -----------------------------------------------------------------------------------

    def start(self, executor: ThreadPoolExecutor, on_stop: OnStop) -> None:
        self._workers.start(executor, self._work, on_stop)
        if self.keeping is not None:
            self.keeping.start()

    def wake(self) -> None:
        with self._lock:  # decided: the next look comes now
            self._looks.wake()
            self._pace.wake(monotonic())
            self._bell.ring()

    def stop(self) -> None:
        self._stopping = True
        self._bell.ring_for(self._workers.count)

    def give_up(self) -> None:
        self._giving_up = True
        self.stop()

    def let_go(self) -> None:
        self._give_back(self.in_hand.close(LAST_SETTLEMENT))

    def join(self, timeout: float) -> bool:
        self.shared.budget.rouse()
        if not self._giving_up:
            return not self._workers.running(timeout)
        self._give_back(self.in_hand.close(timeout))
        return not self.held

    def running(self, timeout: float) -> int:
        return self._workers.running(timeout)

    @property
    def stopping(self) -> bool:
        return self._stopping or self.fatal is not None

    @property
    def idle(self) -> bool:
        return not self.held and self._looks.at_rest

    @property
    def held(self) -> int:
        return len(self.in_hand)

    # -- a worker's loop --------------------------------------------------------------------------------------

    def _work(self, on_stop: OnStop) -> None:
        shared = self.shared
        seat = BatchConnectionWorker(self, on_stop) if shared.batch else ConnectionWorker(self, on_stop)
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

    def _admitted(self, seat: ConnectionWorker) -> bool:
        """Wait until this worker is the one to look; False where it is to end."""
        while not self.stopping:
            with self._lock:  # decided: who looks
                taken = self._looks.looker is not None
                wait = None if taken else self._pace.wait(monotonic())
                if wait == 0.0:
                    self._looks.looker = seat
                    return True
                self._bell.rests()
            self._bell.wait(min(wait, LONGEST) if wait is not None else LONGEST)
            with self._lock:  # decided: who can be rung for
                self._bell.rises()
        return False

    # -- a seat's turns ---------------------------------------------------------------------------------------

    def may_go_on(self, settlement: Settlement) -> bool:
        """Whether a seat that settles so may claim again at once, on the connection that it has."""
        if self._pauses(settlement) or self.stopping or self.shared.budget.slots.wanted(self.shared.queue):
            return False
        return not self._pace.held_back(monotonic())

    def begin_look(self) -> BegunLook:
        with self._lock:  # decided: what this look knows
            self._pace.begin(monotonic())
            return self._looks.begin(self._keys.pass_over() if self._keys else NOBODY)

    def free_keys(self, unfinished: Callable[[Any], bool]) -> None:
        if self._freeing is not None:
            self._freeing.free(monotonic(), self.shared.now(), unfinished)

    def found(self, work: Work, connection: Connection, seat: ConnectionWorker, others: Sequence[Work] = ()) -> None:
        """A look found a row, and the `others` of its batch: there may be more, for another worker."""
        self.in_hand.begin(work, connection)
        for other in others:
            self.in_hand.begin(other, connection)
        with self._lock:  # decided: who looks next
            if self._keys is not None:
                for one in (work, *others):
                    self._keys.claimed(one)
            self._pace.full(monotonic())
            self._looks.found(seat)
            self._bell.ring()
        self._works_again()
        self.shared.runner.notices.tell("claimed", work.delivery)
        for other in others:
            self.shared.runner.notices.tell("claimed", other.delivery)

    def found_nothing(self, ahead: Ahead, look: BegunLook, seat: ConnectionWorker) -> None:
        with self._lock:  # decided: when somebody looks again
            due_in, now = self._next_due.due_in(ahead, self.shared.now()), monotonic()
            passed_over = due_in is not None and due_in <= 0
            if self._looks.found_nothing(seat, look):
                self._pace.short(now, due_in=due_in, hidden=ahead.hidden, certain=self.shared.certain())
                if self._pace.wait(now) != 0.0:
                    self._looks.saw_all(look, passed_over=passed_over)
            elif due_in is not None:  # a later look that ran beside it may not have seen that row, tried by both
                self._pace.due(now, SOON if passed_over else due_in)
                if passed_over:
                    self._looks.doubt()
        self._works_again()
        self.shared.runner.notices.tell("looked")

    def more(self) -> None:
        """A seat gave its connection up although there may be more rows."""
        with self._lock:  # decided: the next look comes now
            self._looks.forget()
            self._pace.wake(monotonic())

    def _rest(self, seat: ConnectionWorker) -> None:
        """A worker is done, whatever it found."""
        with self._lock:  # decided: who looks next
            self._looks.rests(seat)
            if self._looks.looker is None and self._pace.wait(monotonic()) == 0.0:
                self._bell.ring()
        if self.on_idle is not None and self.idle:
            self.on_idle()

    @property
    def held_unseen(self) -> int:
        """Rows in work that a look takes for due: those that it does not pass over by their keys."""
        in_work = self.in_hand.in_work
        return len(in_work) if self._keys is None else sum(work.key is None for work in in_work)

    # -- settling ---------------------------------------------------------------------------------------------

    def take_back(self, work: Work) -> bool:
        """A handler is done; False where its row was given back meanwhile."""
        mine = self.in_hand.take(work)
        if not mine:
            self.report.late(work)
        return mine

    def settled(self, one: Finished, *, gone: bool) -> None:
        settlement = one.verdict.settlement
        again = settlement.redelivers and not gone
        with self._lock:  # decided: what the row's key, and the next look, wait for
            if self._keys is not None and settlement.move is Move.RETRY and not gone:
                self._keys.retried(one.work, settlement.due)
            elif self._keys is not None:
                self._keys.dropped(one.work) if settlement.move is Move.RELEASE else self._keys.settled(one.work)
            if again:
                self._due(settlement)
            elif self.shared.frees_others:
                self._pace.wake(monotonic())
        self._works_again()
        if again and self._pauses(settlement):
            self.report.cannot_hide()
        self.report.settle(one, gone=gone)
        self.in_hand.done()

    def _pauses(self, settlement: Settlement) -> bool:
        """Whether the row asks to wait and nothing can hide it, so that claims wait instead."""
        return settlement.move is Move.RETRY and settlement.due is not None and not self.shared.hides

    def _due(self, settlement: Settlement) -> None:
        due_in = 0.0 if settlement.due is None else (settlement.due - self.shared.now()).total_seconds()
        now = monotonic()
        if self._pauses(settlement):
            self._pace.pause(now, min(due_in, self._pace.poll))
            due_in = 0.0
        self._pace.due(now, due_in)
        if self._keys is not None:
            self._pace.due(now, due_in + FREE_KEYS)

    def lose(self, work: Work) -> None:
        """The row could not be settled: it returns to the queue as it is."""
        if self._keys is not None:
            with self._lock:  # decided: its key is free
                self._keys.dropped(work)
        work.delivery.lose()
        self.report.late(work)
        self.in_hand.done()

    def _give_back(self, taken: Sequence[tuple[Work, Connection]]) -> None:
        """Give back what handlers are still at; what they still do comes too late."""
        for work, connection in taken:
            ConnectionWorker(self, lambda error: None).give_back(work, connection)

    # -- trouble ----------------------------------------------------------------------------------------------

    def _trouble(self, error: Exception, on_stop: OnStop) -> None:
        shared = self.shared
        trouble = shared.classify(error)
        with self._lock:  # decided: when the next try is; those that fail together fail once
            if self.outage.lasts and self._pace.held_back(monotonic()) and trouble is not Trouble.CLOSED:
                return
            self._looks.forget()
            if shared.lease is not None and trouble is Trouble.LOST:
                self._pace.due(monotonic(), shared.lease)  # rows may have been claimed for nobody
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
