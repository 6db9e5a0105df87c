"""How other threads reach a pump: finished deliveries, and hints that are remembered if nobody waits.

Settlements that the database refuses: each row is settled by itself, so that one of them keeps no other.

The pump: one thread owns the database work of a queue whose deliveries hold no connection.

It drains finished deliveries, turns (settles them and claims for the idle workers, in one round trip), and hands the
claims to the workers. While a turn is under way more deliveries finish, so batches grow by themselves under load and
nothing waits for a timer when idle. All that the thread decides on is its own; others reach it by its inbox alone.

A pump with its thread and its workers: the pump claims for all of them, and they run handlers only.

A pump whose workers take batches.
"""

import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import Generic, TypeVar

import attrs

from sqlqueue.consumer.budget import Database
from sqlqueue.consumer.health import Outage
from sqlqueue.consumer.in_flight import BatchInFlight, FinishedBatch, InFlight, Settlements
from sqlqueue.consumer.key_order import FREE_KEYS, Freeing
from sqlqueue.consumer.leases import LeaseTimer
from sqlqueue.consumer.polling import PollTimer, take
from sqlqueue.consumer.run_handler import BatchRunner, Finished, Runner, Work
from sqlqueue.consumer.settling import Report
from sqlqueue.consumer.workers import OnStop, WorkerThreads
from sqlqueue.delivery import Delivery
from sqlqueue.dialect import Trouble
from sqlqueue.observers import Observers
from sqlqueue.outcome import Move, Rules, refused
from sqlqueue.strategies.claim import Claim, Turned

log = logging.getLogger("sqlqueue")


T = TypeVar("T")

#: Seconds after which a wait returns in any case; the platform's locks take no endless numbers.
LONGEST = 3600.0


class Inbox(Generic[T]):
    """Items put by many threads, taken all at once by one."""

    def __init__(self) -> None:
        self._items: SimpleQueue[T | None] = SimpleQueue()
        self._lock = Lock()
        self._seen = 0
        self._closed = False
        self.wakes = 0

    def put(self, item: T) -> bool:
        """Hand an item over; False, and nothing is taken, once the inbox is closed."""
        if self._closed:
            return False
        self._items.put(item)
        return True

    def wake(self) -> None:
        """Count a wake-up. One that nobody has seen yet stands for all that come before it is."""
        with self._lock:  # whether the taker must be roused
            rouse = self.wakes == self._seen
            self.wakes += 1
        if rouse:
            self._items.put(None)

    def rouse(self) -> None:
        """Have the taker return, with nothing if need be."""
        self._items.put(None)

    def take(self, timeout: float | None) -> tuple[list[T], bool]:
        """All items that are there, and whether somebody woke.

        Waits up to `timeout` seconds for the first (None: for ever).
        """
        items: list[T] = []
        try:
            item = self._items.get() if timeout is None else take(self._items, min(timeout, LONGEST))
            while True:
                if item is not None:
                    items.append(item)
                item = self._items.get_nowait()
        except Empty:
            pass
        if self.wakes == self._seen:
            return items, False
        with self._lock:  # wake-ups up to here are seen; the next one rouses again
            self._seen = self.wakes
        return items, True

    def close(self) -> None:
        """Refuse what comes from here on."""
        self._closed = True


@attrs.frozen
class Singly:
    """Settles a turn's rows one transaction at a time, after the turn as a whole was refused."""

    queue: str
    database: Database
    ledger: Settlements
    rules: Rules
    post: Callable[[Sequence[Finished], Turned], None]

    def settle(self) -> None:
        """Settle all that is unsettled. A row that is refused failed: its policy says where it goes; if all of that is
        refused, its lease ends by itself. Raises what trying again may mend, with the rest still unsettled."""
        unsettled = self.ledger.unsettled
        while unsettled:
            one = unsettled[-1]
            tried, error = one, self._try(one)
            while error is not None and (tried is one or tried.verdict.settlement.move is Move.DEAD_LETTER):
                rules, attempt = one.work.rules or self.rules, one.work.delivery.attempt
                verdict = refused(rules, attempt, tried.verdict, error, self.database.now())
                tried = attrs.evolve(tried, verdict=verdict)
                error = self._try(tried)
            unsettled.remove(one)
            if error is not None:
                self.ledger.drop(one.work)

    def _try(self, one: Finished) -> Exception | None:
        """Settle one row; the error where the database refuses that."""
        claim = one.work.delivery.claim
        try:
            turned = self.database.turn([(claim, one.verdict.settlement)], 0)
        except Exception as error:  # sorted by what the dialect makes of it
            if self.database.classify(error) is not Trouble.PERMANENT:
                raise
            log.error("queue %s: row %r: it could not be %s", self.queue, claim.id, one.verdict.kind, exc_info=error)
            return error
        self.post([one], turned)
        return None


class Dispatcher:
    """The database work of one queue. A test may call `step()` itself, without a thread."""

    def __init__(
        self,
        *,
        queue: str,
        database: Database,
        runner: Runner,
        hands: InFlight,
        pace: PollTimer,
        keeper: LeaseTimer,
        notices: Observers,
        certain: Callable[[], bool] = lambda: False,
        frees_others: bool = False,
    ) -> None:
        self._queue, self._database, self._runner, self._hands = queue, database, runner, hands
        self._pace, self._keeper, self._notices, self._certain = pace, keeper, notices, certain
        self._inbox: Inbox[Finished | FinishedBatch] = Inbox()
        self._looked = -1
        self._freeing = Freeing(hands, pace)
        self._stopping = self._giving_up = False
        self._frees_others = frees_others
        self.ledger = Settlements(queue, hands, notices)
        self.outage = Outage(queue)
        self.fatal: BaseException | None = None
        self.on_idle: Callable[[], None] | None = None
        self._singly = Singly(queue, database, self.ledger, runner.rules, self._post)

    # -- from other threads -----------------------------------------------------------------------------------

    def wake(self) -> None:
        """Look now; a wake-up while a claim is under way counts for the next wait."""
        self._inbox.wake()

    def finish(self, finished: Finished) -> None:
        """Take a finished delivery to be settled; one that comes after the end is told that it is late."""
        if not self._inbox.put(finished):
            self.ledger.report.late(finished.work)

    def finish_batch(self, batch: FinishedBatch) -> None:
        """The same for all rows of a batch, which settle in one turn."""
        if not self._inbox.put(batch):
            for finished in batch.finished:
                self.ledger.report.late(finished.work)

    def stop(self) -> None:
        """Claim no more; what was claimed and not started goes back, what is in work is waited for."""
        self._stopping = True
        self._inbox.rouse()

    def give_up(self) -> None:
        """Give back what is still in work, and end."""
        self._stopping = self._giving_up = True
        self._inbox.rouse()

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop, or must."""
        return self._stopping or self.fatal is not None

    @property
    def idle(self) -> bool:
        """Whether nothing is in hand and the last look, begun after the last wake-up, found nothing more."""
        return not self._hands.held and not self.ledger.unsettled and self._looked == self._inbox.wakes

    @property
    def held(self) -> int:
        """Rows in hand: claimed and not settled."""
        return len(self._hands.held)

    # -- the thread -------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Step until stopped and everything in work is settled."""
        while self.step():
            pass
        self._inbox.close()

    def step(self) -> bool:
        """Wait for something to do and do it; False when there is nothing left to do."""
        finished, woken = self._inbox.take(self._timeout())
        for one in self._hands.came_back(finished):
            self.ledger.enter(one)
        if woken:
            self._pace.wake(monotonic())
        if self._stopping:
            self.ledger.put_back(self._hands.unstarted())
        if self._giving_up:
            self.ledger.give_up()
        try:
            self._extend()
            if not self._must_wait(monotonic()):
                self._turn()
        except Exception as error:  # noqa: BLE001 - the loop's edge: whatever went wrong is classified
            self._trouble(error)
        self._hands.hand_out()
        if self.on_idle is not None and self.idle:
            self.on_idle()
        return not self._done

    @property
    def _done(self) -> bool:
        if self.fatal is not None or (self._giving_up and self.outage.lasts):
            return True
        return self._stopping and not self._hands.held

    def _timeout(self) -> float | None:
        now = monotonic()
        waits = [self._keeper.wait(now)]
        if self._stopping and not self._hands.held:
            waits.append(0.0)
        elif self.ledger.unsettled:
            waits.append(self._pace.wait(now) if self._must_wait(now) else 0.0)
        elif not self._stopping and self._hands.room > 0:
            waits.append(self._pace.wait(now))
        return min((wait for wait in waits if wait is not None), default=None)

    def _must_wait(self, now: float) -> bool:
        """Whether an outage says to leave the database alone for now."""
        return self.outage.lasts and not self._giving_up and self._pace.wait(now) != 0.0

    # -- turns ------------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Settle what is finished and claim what fits, then hand out the claims."""
        now = monotonic()
        if self._frees_others and self.ledger.unsettled:
            self._pace.wake(now)  # rows wait for these to be settled
        look = self._pace.wait(now) == 0.0
        limit = 0
        if look and not self._stopping:
            limit = max(0, min(self._hands.room + len(self.ledger.unsettled), self._hands.capacity))
        if not limit and not self.ledger.unsettled:
            return
        wakes = self._inbox.wakes
        if limit:
            self._pace.begin(now)
            self._freeing.free(now, self._database.now(), self._database.unfinished)
        turned = self._settle_and_claim(limit)
        if turned is None:
            return
        self._works_again()
        if limit:
            self._dispatch(turned.claims, now)
            self._after_look(len(turned.claims) < limit, wakes)

    def _settle_and_claim(self, limit: int) -> Turned | None:
        """One turn; None where a settlement was refused and all were settled singly instead."""
        finished, self.ledger.unsettled = self.ledger.unsettled, []
        pairs = [(one.work.delivery.claim, one.verdict.settlement) for one in finished]
        try:
            turned = self._database.turn(pairs, limit, self._hands.pass_over())
        except Exception as error:  # sorted by what the dialect makes of it
            self.ledger.unsettled = finished
            trouble = self._database.classify(error)
            if limit and trouble is Trouble.LOST:  # and with it the answer: rows may have been claimed for nobody
                self._pace.due(monotonic(), self._database.lease)
            if not finished or trouble is not Trouble.PERMANENT:
                raise
            self._singly.settle()
            return None
        self._post(finished, turned)
        return turned

    def _post(self, finished: Sequence[Finished], turned: Turned) -> None:
        for due in self.ledger.post(finished, turned):
            if due is None:
                self._looked = -1
            due_in = 0.0 if due is None else (due - self._database.now()).total_seconds()
            self._pace.due(monotonic(), due_in)
            if self._hands.by_key:
                self._pace.due(monotonic(), due_in + FREE_KEYS)

    def _dispatch(self, claims: Sequence[Claim], began: float) -> None:
        """Hand claimed rows to the workers; a row whose key waits for a failed one goes back. Their leases count from
        when the claim `began`, for it may have waited long for the database."""
        if not claims:
            return
        self._keeper.written(began)
        key = self._runner.reader.raw_key
        works = [Work(Delivery(self._queue, claim), key(claim.row)) for claim in claims]
        for work in self._hands.in_order(works):
            if self._hands.blocked(work) is not None:  # its key failed in the very turn that claimed it
                self._hands.held.add(work)
                self.ledger.put_back([work])
                continue
            self._notices.tell("claimed", work.delivery)
            self._hands.take(work)
        self._hands.hand_out()

    def _after_look(self, short: bool, wakes: int) -> None:
        if not short:
            self._pace.full(monotonic())
            return
        ahead, due_in = self._database.look_ahead(self._hands.pass_over())
        self._pace.short(monotonic(), due_in=due_in, hidden=ahead.hidden, certain=self._certain())
        if self._pace.wait(monotonic()) != 0.0:  # not where a row of this very turn is due again
            self._looked = wakes
        self._notices.tell("looked")

    # -- leases and trouble -----------------------------------------------------------------------------------

    def _extend(self) -> None:
        """Extend the leases of all that is in work, once half of the oldest has passed."""
        if self._keeper.wait(monotonic()) != 0.0:
            return
        settling = {one.work for one in self.ledger.unsettled}
        works = {id(work.delivery.claim): work for work in self._hands.held - settling}
        began = monotonic()  # one that waits long for the database writes a lease that has begun long ago
        self._keeper.failed(began)  # until it went through
        if works:
            claims = [work.delivery.claim for work in works.values()]
            lost = self._database.extend(claims)
            for claim in lost:
                self.ledger.lose(works[id(claim)])
            self._notices.tell("extended", detail=len(claims) - len(lost))
            if not self.ledger.unsettled and self._hands.room <= 0:
                self._works_again()  # there is no turn that would tell
        self._keeper.extended(began, bool(works))

    def _trouble(self, error: Exception) -> None:
        trouble = self._database.classify(error)
        if trouble is Trouble.CLOSED:
            self.fatal = error
        permanent = trouble is Trouble.PERMANENT
        pause = self._pace.trouble(monotonic(), spread=random.random(), permanent=permanent)  # noqa: S311 - jitter
        self.outage.begin(trouble, error, pause)
        self._notices.tell("trouble", detail=self.outage.error)

    def _works_again(self) -> None:
        self._pace.recovered()
        if self.outage.end():
            self._notices.tell("recovered")


class DispatcherThreads:
    """Turns by a pump."""

    def __init__(self, pump: Dispatcher, hands: InFlight, runner: Runner, *, queue: str, workers: int) -> None:
        self.pump, self._hands, self._runner, self._queue = pump, hands, runner, queue
        self._workers = WorkerThreads(queue, workers)
        self._thread: Thread | None = None
        self.wake, self.stop, self.give_up = pump.wake, pump.stop, pump.give_up

    def start(self, executor: ThreadPoolExecutor, on_stop: OnStop) -> None:
        self._workers.start(executor, self._work, on_stop)
        self._thread = Thread(target=self._run, args=(on_stop,), name=f"sqlqueue-pump {self._queue}", daemon=True)
        self._thread.start()

    def _run(self, on_stop: OnStop) -> None:
        try:
            self.pump.run()
        except BaseException as error:  # a bug of ours must end the run, not leave it standing still
            log.critical("queue %s: its pump failed", self._queue, exc_info=error)
            self.pump.fatal = error
        finally:
            for _ in range(self._workers.count):
                self._hands.ready.put(None)
            if self.pump.fatal is not None:
                on_stop(self.pump.fatal)

    def _work(self, on_stop: OnStop) -> None:
        """Take a row, run the handler, hand back what became of it, until there is no more."""
        ready, run, finish = self._hands.ready, self._runner.run, self.pump.finish
        while (work := ready.get()) is not None:
            if work.delivery.lost:  # found out before its handler began
                continue
            finished = run(work)
            if finished.stop is not None:
                on_stop(finished.stop)  # first, so that the row that goes back is not claimed again
            finish(finished)
            del work, finished

    def let_go(self) -> None:
        """Nothing: what is in work is held by its lease, and a settlement under way has its connection."""

    def join(self, timeout: float) -> bool:
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def running(self, timeout: float) -> int:
        return self._workers.running(timeout)

    @property
    def report(self) -> Report:
        return self.pump.ledger.report

    @property
    def outage(self) -> Outage:
        return self.pump.outage

    @property
    def on_idle(self) -> Callable[[], None] | None:
        return self.pump.on_idle

    @on_idle.setter
    def on_idle(self, told: Callable[[], None] | None) -> None:
        self.pump.on_idle = told

    @property
    def stopping(self) -> bool:
        return self.pump.stopping

    @property
    def idle(self) -> bool:
        return self.pump.idle

    @property
    def held(self) -> int:
        return self.pump.held


class BatchDispatcherThreads(DispatcherThreads):
    """Turns by a pump, for a handler of batches."""

    def __init__(
        self, pump: Dispatcher, hands: BatchInFlight, runner: BatchRunner, *, queue: str, workers: int
    ) -> None:
        super().__init__(pump, hands, runner, queue=queue, workers=workers)
        self._run_batch = runner.run_batch

    def _work(self, on_stop: OnStop) -> None:
        """Take a batch, run the handler, hand back what became of its rows, until there is no more."""
        ready, run, finish = self._hands.ready, self._run_batch, self.pump.finish_batch
        while (works := ready.get()) is not None:
            finished = run([work for work in works if not work.delivery.lost])
            for stop in [one.stop for one in finished if one.stop is not None]:
                on_stop(stop)  # first, so that the rows that go back are not claimed again
            finish(FinishedBatch(len(works), finished))
            del works, finished
