"""What the connection workers of one queue share, where each delivery holds its connection.

A worker that is done settles its rows and claims the next in one round trip. Idle workers hold no connection, and one
of them at a time claims: the one that finds a row wakes the next, so that workers fill up while there is work, and an
empty queue costs one claim. What the workers share is decided under one lock; no SQL runs under it.
"""

import random
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from time import monotonic
from typing import Any

from sqlqueue.consumer.health import Outage
from sqlqueue.consumer.key_order import FREE_KEYS, BlockedKeys, KeyOrder
from sqlqueue.consumer.polling import LONGEST, SOON, ClaimRound, ClaimRounds, IdleWorkers, PollTimer
from sqlqueue.consumer.run_handler import Finished, Work
from sqlqueue.consumer.settling import Report, RowsInWork
from sqlqueue.consumer.workers import GroupPlan, OnStop, WorkerThreads
from sqlqueue.dialect import Connection, Trouble
from sqlqueue.outcome import Move, Settlement
from sqlqueue.strategies.claim import NOBODY, Turned, Upcoming

#: Seconds that a broker's close waits for claims and settlements under way.
LAST_SETTLEMENT = 5.0


class WorkerGroup:
    """The connection workers of one queue: their claims, their poll timer and their report.

    `work` is one worker's loop, which ends when the group stops. `give_back` gives a row back whose handler is still at
    work. Workers are compared by identity.
    """

    def __init__(
        self,
        plan: GroupPlan,
        timer: PollTimer,
        *,
        workers: int,
        work: Callable[["WorkerGroup", OnStop], None],
        give_back: Callable[["WorkerGroup", Work, Connection], None],
    ) -> None:
        self.plan = plan
        self.observers = plan.runner.observers
        self.report = Report(plan.queue, self.observers)
        self.outage = Outage(plan.queue)
        self.stopping = self._giving_up = self._failed = False
        self.on_idle: Callable[[], None] | None = None
        self.rows = RowsInWork()
        self.one_claim = Lock()  # held over a claim, where claims that run side by side would collide
        self._lock = self.rows.changed
        self._timer = timer
        self._keys: KeyOrder[Work] | None = KeyOrder() if plan.by_key else None
        self._blocked = BlockedKeys(self._keys, timer) if self._keys is not None else None
        self._rounds, self._idle_workers = ClaimRounds(), IdleWorkers()
        self._work, self._give_back = work, give_back
        self._threads = WorkerThreads(plan.queue, workers)

    # -- from other threads -----------------------------------------------------------------------------------

    def start(self, executor: ThreadPoolExecutor, on_stop: OnStop) -> None:
        self._threads.start(executor, lambda on_stop: self._work(self, on_stop), on_stop)

    def wake(self) -> None:
        with self._lock:  # decided: the next claim comes now
            self._rounds.wake()
            self._timer.wake(monotonic())
            self._idle_workers.wake()

    def stop(self) -> None:
        self.stopping = True
        self._idle_workers.wake_all(self._threads.count)

    def give_up(self) -> None:
        self._giving_up = True
        self.stop()

    def let_go(self) -> None:
        self._empty(LAST_SETTLEMENT)

    def join(self, timeout: float) -> bool:
        self.plan.budget.rouse()
        if not self._giving_up:
            return not self._threads.running(timeout)
        self._empty(timeout)
        return not self.held

    def _empty(self, timeout: float) -> None:
        for work, connection in self.rows.close(timeout):
            self._give_back(self, work, connection)

    def running(self, timeout: float) -> int:
        return self._threads.running(timeout)

    def is_stopping(self) -> bool:
        return self.stopping

    @property
    def idle(self) -> bool:
        with self._lock:  # rows and claims are of one moment
            return not len(self.rows) and self._rounds.at_rest

    @property
    def held(self) -> int:
        return len(self.rows)

    # -- claims -----------------------------------------------------------------------------------------------

    def admit(self, worker: Hashable) -> bool:
        """Wait until this worker is the one to claim; False where it is to end."""
        while not self.stopping:
            with self._lock:  # decided: who claims
                wait = self._timer.wait(monotonic()) if self._rounds.claimer is None else None
                if wait == 0.0:
                    self._rounds.claimer = worker
                    return True
                self._idle_workers.rest()
            self._idle_workers.wait(LONGEST if wait is None else min(wait, LONGEST))
            with self._lock:  # decided: who can be woken
                self._idle_workers.rise()
        return False

    def begin_claim(self) -> ClaimRound | None:
        """A claim begins; None where there may be none now, although there may be rows."""
        with self._lock:  # decided: whether rows may come to work, and what this claim knows
            now = monotonic()
            if self.stopping or self.rows.closed or self._timer.held_back(now):
                return None
            self.rows.claiming += 1
            self._timer.begin(now)
            return self._rounds.begin(NOBODY if self._keys is None else self._keys.pass_over())

    def end_claim(self, round: ClaimRound) -> None:
        """The claim failed."""
        with self._lock:  # decided: whether whoever waits may go on
            round.over = True
            self.rows.claiming -= 1
            self._lock.notify_all()

    def found(self, round: ClaimRound, works: Sequence[Work], connection: Connection, worker: Hashable) -> None:
        """A claim found rows: there may be more, for another worker."""
        with self._lock:  # decided: who claims next
            if self._keys is not None:
                for work in works:
                    if not self._keys.enter(work.key, work):
                        raise AssertionError(f"a row of key {work.key!r} was claimed while another is in work")
            for work in works:
                self.rows.in_work[work] = connection
            round.over = True
            self.rows.claiming -= 1
            self._lock.notify_all()
            self._timer.full(monotonic())
            self._rounds.found(worker)
            self._idle_workers.wake()
        if self.outage.error is not None:
            self._recover()
        if self.observers.any:
            for work in works:
                self.observers.tell("claimed", work.delivery)

    def found_nothing(self, round: ClaimRound, ahead: Upcoming, worker: Hashable) -> None:
        waker = self.plan.waker
        with self._lock:  # decided: when somebody claims next
            round.over = True
            self.rows.claiming -= 1
            self._lock.notify_all()
            due_in, now = self._timer.due_in(ahead, self.plan.now()), monotonic()
            passed_over = due_in is not None and due_in <= 0
            if self._rounds.found_nothing(worker, round):
                certain = waker is not None and waker.certain
                self._timer.short(now, due_in=due_in, hidden=ahead.hidden, certain=certain)
                if self._timer.wait(now) != 0.0:
                    self._rounds.saw_all(round, passed_over=passed_over)
            elif due_in is not None:  # a later claim that ran beside it may not have seen that row, tried by both
                self._timer.due(now, SOON if passed_over else due_in)
                if passed_over:
                    self._rounds.doubt()
        if self.outage.error is not None:
            self._recover()
        if self.observers.any:
            self.observers.tell("looked")

    def expect_more(self) -> None:
        """A worker gives its connection up although there may be more rows."""
        with self._lock:  # decided: the next claim comes now
            self._rounds.forget()
            self._timer.wake(monotonic())

    def rest(self, worker: Hashable) -> None:
        """A worker is done, whatever it found."""
        with self._lock:  # decided: who claims next
            self._rounds.rest(worker)
            if self._rounds.claimer is None and self._timer.wait(monotonic()) == 0.0:
                self._idle_workers.wake()
        if self.on_idle is not None and self.idle:
            self.on_idle()

    def unblock_keys(self, unfinished: Callable[[Any], bool]) -> None:
        """Let keys go on whose failed row was settled elsewhere."""
        if self._blocked is not None:
            self._blocked.check(monotonic(), self.plan.now(), unfinished)

    def held_unseen(self) -> int:
        """Rows in work that a claim takes for due: those that it does not pass over by their keys."""
        with self._lock:  # others come and go meanwhile
            in_work = self.rows.in_work
            return len(in_work) if self._keys is None else sum(work.key is None for work in in_work)

    # -- settlements ------------------------------------------------------------------------------------------

    def settled(self, finished: Sequence[Finished], turned: Turned) -> None:
        """The rows of a turn are settled, but for those that were lost."""
        if self.outage.error is not None:
            self._recover()
        lost = {id(claim) for claim in turned.lost} if turned.lost else ()
        gone = {id(claim) for claim in turned.gone} if turned.gone else ()
        for one in finished:
            claim = id(one.work.delivery.claim)
            if claim in lost:
                self.lose(one.work)
            else:
                self._settled(one, gone=claim in gone)

    def _settled(self, one: Finished, *, gone: bool) -> None:
        settlement, key = one.verdict.settlement, one.work.key
        stays = not gone and settlement.move in (Move.RETRY, Move.ADVANCE)
        pauses = stays and not self.plan.hides and settlement.move is Move.RETRY and settlement.due is not None
        with self._lock:  # decided: what the row's key, and the next claim, wait for
            if self._keys is None:
                pass
            elif stays and settlement.move is Move.RETRY:
                self._keys.hold(key, one.work.delivery.claim.id, settlement.due)
            elif settlement.move is Move.RELEASE:
                self._keys.put_off(key)
            else:
                self._keys.leave(key)
            if stays:
                self._expect(settlement, pauses=pauses)
            elif self.plan.frees_others:
                self._timer.wake(monotonic())
        if pauses:
            self.report.cannot_hide()
        self.report.record(one, gone=gone)
        self.rows.done(1)

    def _expect(self, settlement: Settlement, *, pauses: bool) -> None:
        """The row falls due again; `pauses`: claims wait for it, because nothing can hide it. The lock is held."""
        due_in = 0.0 if settlement.due is None else (settlement.due - self.plan.now()).total_seconds()
        now = monotonic()
        if pauses:
            self._timer.pause(now, min(due_in, self._timer.poll))
            due_in = 0.0
        self._timer.due(now, due_in)
        if self._keys is not None:
            self._timer.due(now, due_in + FREE_KEYS)

    def lose(self, work: Work) -> None:
        """The row could not be settled: it returns to the queue as it is."""
        if self._keys is not None:
            with self._lock:  # decided: its key is free
                self._keys.put_off(work.key)
        work.delivery.lose()
        self.report.late(work)
        self.rows.done(1)

    # -- trouble ----------------------------------------------------------------------------------------------

    def trouble(self, error: Exception, on_stop: OnStop) -> None:
        plan = self.plan
        trouble = plan.classify(error)
        with self._lock:  # decided: when the next try is; those that fail together fail once
            if self.outage.error is not None and self._timer.held_back(monotonic()) and trouble is not Trouble.CLOSED:
                return
            self._rounds.forget()
            if plan.lease is not None and trouble is Trouble.LOST:
                self._timer.due(monotonic(), plan.lease)  # rows may have been claimed for nobody
            permanent = trouble is Trouble.PERMANENT
            pause = self._timer.trouble(monotonic(), spread=random.random(), permanent=permanent)  # noqa: S311 - jitter
            ends, self._failed = (
                trouble is Trouble.CLOSED and not self._failed,
                self._failed or trouble is Trouble.CLOSED,
            )
        self.outage.begin(trouble, error, pause)
        if self.observers.any:
            self.observers.tell("trouble", detail=self.outage.error)
        if ends:
            self.stopping = True
            on_stop(error)

    def _recover(self) -> None:
        with self._lock:  # decided: one of those who see it tells
            self._timer.recovered()
            over = self.outage.end()
        if over and self.observers.any:
            self.observers.tell("recovered")
