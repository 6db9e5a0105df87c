"""The dispatcher: one thread claims and settles for all workers of a queue whose deliveries hold no connection.

It collects finished rows, settles them and claims for the idle workers in one transaction, and hands the claimed rows
to the workers, which run handlers only. While a transaction is under way more handlers finish, so batches grow by
themselves under load, and nothing waits for a timer when the queue is idle. The dispatcher's thread owns all that it
decides on; other threads reach it through its inbox.
"""

import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Thread
from time import monotonic

import attrs

from sqlqueue.consumer.budget import Database
from sqlqueue.consumer.health import Outage
from sqlqueue.consumer.in_flight import InFlight, LeaseTimer, Returned
from sqlqueue.consumer.key_order import FREE_KEYS, BlockedKeys
from sqlqueue.consumer.polling import NEVER, Inbox, PollTimer
from sqlqueue.consumer.run_handler import Finished, Runner, Work
from sqlqueue.consumer.settling import Report, settle_singly
from sqlqueue.consumer.workers import OnStop, WorkerThreads
from sqlqueue.delivery import Delivery
from sqlqueue.dialect import Trouble
from sqlqueue.observers import Observers
from sqlqueue.strategies.claim import NOBODY, Claim, Turned

log = logging.getLogger("sqlqueue")


@attrs.define(eq=False, kw_only=True)
class Dispatcher:
    """Works one queue off, with the dispatcher's thread and its workers' threads; a `WorkerPool`.

    `certain` tells whether every write to the queue wakes it. `frees_others`: whether rows wait for others to be
    settled. A test may call `step()` itself, without threads.
    """

    _queue: str
    _database: Database
    _runner: Runner
    _in_flight: InFlight
    _poll_timer: PollTimer
    _lease_timer: LeaseTimer
    _workers: WorkerThreads
    _certain: Callable[[], bool] = lambda: False
    _frees_others: bool = False
    report: Report = attrs.field(init=False)
    outage: Outage = attrs.field(init=False)
    fatal: BaseException | None = attrs.field(default=None, init=False)
    on_idle: Callable[[], None] | None = attrs.field(default=None, init=False)
    _observers: Observers = attrs.field(init=False)
    _blocked_keys: BlockedKeys = attrs.field(init=False)
    _inbox: Inbox[Returned] = attrs.field(factory=Inbox, init=False)
    _nothing_since: int = attrs.field(default=-1, init=False)  # wake-ups seen by a claim that found nothing more
    _stopping: bool = attrs.field(default=False, init=False)
    _giving_up: bool = attrs.field(default=False, init=False)
    _thread: Thread | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self._observers = self._runner.observers
        self.report, self.outage = Report(self._queue, self._observers), Outage(self._queue)
        self._blocked_keys = BlockedKeys(self._in_flight, self._poll_timer)

    # -- from other threads -----------------------------------------------------------------------------------

    def start(self, executor: ThreadPoolExecutor, on_stop: OnStop) -> None:
        self._workers.start(executor, self._work, on_stop)
        name = f"sqlqueue-dispatcher {self._queue}"
        self._thread = Thread(target=self._run, args=(on_stop,), name=name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._inbox.wake()

    def finish(self, works: Sequence[Work], finished: Sequence[Finished]) -> None:
        """Take the rows of a batch that a worker is done with: they settle in one turn. `finished` says what became of
        them; it leaves out those that were lost before. After the end they are late."""
        if not self._inbox.put((works, finished)):
            for one in finished:
                self.report.late(one.work)

    def stop(self) -> None:
        self._stopping = True
        self._inbox.rouse()

    def give_up(self) -> None:
        self._stopping = self._giving_up = True
        self._inbox.rouse()

    def let_go(self) -> None:
        """Nothing: leases hold what is in flight, and a settlement under way has its connection."""

    def join(self, timeout: float) -> bool:
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def running(self, timeout: float) -> int:
        return self._workers.running(timeout)

    @property
    def stopping(self) -> bool:
        return self._stopping or self.fatal is not None

    @property
    def idle(self) -> bool:
        in_flight = self._in_flight
        return not in_flight.held and not in_flight.unsettled and self._nothing_since == self._inbox.wakes

    @property
    def held(self) -> int:
        return len(self._in_flight.held)

    # -- the threads ------------------------------------------------------------------------------------------

    def _run(self, on_stop: OnStop) -> None:
        """The dispatcher's loop: step until stopped and everything in flight is settled."""
        try:
            while self.step():
                pass
        except BaseException as error:  # a bug of ours must end the run, not leave it standing still
            log.critical("queue %s: its dispatcher failed", self._queue, exc_info=error)
            self.fatal = error
        finally:
            self._inbox.close()
            for _, finished in self._inbox.take(0.0)[0]:  # they were accepted behind the last step
                for one in finished:
                    self.report.late(one.work)
            for _ in range(self._workers.count):
                self._in_flight.ready.put(None)
            if self.fatal is not None:
                on_stop(self.fatal)

    def _work(self, on_stop: OnStop) -> None:
        """A worker's loop: take rows, run the handler, hand back what became of them, until there are no more."""
        ready, run = self._in_flight.ready, self._runner.run
        while (works := ready.get()) is not None:
            found = [work for work in works if not work.delivery.lost]  # lost before their handler began
            finished = run(found) if found else []
            for one in finished:
                if one.stop is not None:
                    on_stop(one.stop)  # first, so that rows which go back are not claimed once more
            self.finish(works, finished)
            del works, found, finished

    # -- a step of the dispatcher -----------------------------------------------------------------------------

    def step(self) -> bool:
        """Wait for something to do and do it; False when there is nothing left to do."""
        in_flight = self._in_flight
        returned, woken = self._inbox.take(self._timeout())
        if returned:
            for one in in_flight.came_back(returned):
                self.report.late(one.work)
        if woken:
            self._poll_timer.wake(monotonic())
        if self._stopping:
            in_flight.put_back_unstarted()
        if self._giving_up:
            in_flight.put_back_all()
        now = monotonic()
        try:
            if self._lease_timer.at <= now:
                self._extend(now)
            if self.outage.error is None or self._giving_up or self._poll_timer.at <= monotonic():
                self._turn()
        except Exception as error:  # noqa: BLE001 - the loop's edge: whatever went wrong is classified
            self._trouble(error)
        if in_flight.begun:
            in_flight.hand_out()
        if self.on_idle is not None and self.idle:
            self.on_idle()
        if self.fatal is not None or (self._giving_up and self.outage.error is not None):
            return False
        return not self._stopping or bool(in_flight.held)

    def _timeout(self) -> float | None:
        """Seconds that the next step may wait for something to happen; None for ever."""
        now, until, in_flight = monotonic(), self._lease_timer.at, self._in_flight
        if self._stopping and not in_flight.held:
            return 0.0
        if in_flight.unsettled:
            waits = self.outage.error is not None and not self._giving_up
            until = min(until, self._poll_timer.at if waits else now)
        elif not self._stopping and in_flight.room > 0:
            until = min(until, self._poll_timer.at)
        return None if until == NEVER else max(0.0, until - now)

    def _turn(self) -> None:
        """Settle what is finished and claim what fits, in one transaction; then hand out the claims."""
        now, in_flight, database = monotonic(), self._in_flight, self._database
        finished = in_flight.unsettled
        if self._frees_others and finished:
            self._poll_timer.wake(now)  # rows wait for these to be settled
        limit = 0
        if self._poll_timer.at <= now and not self._stopping:
            limit = max(0, min(in_flight.room + len(finished), in_flight.capacity))
        if not limit and not finished:
            return
        wakes = self._inbox.wakes
        if limit:
            self._poll_timer.begin(now)
            if in_flight.by_key:
                self._blocked_keys.check(now, database.now(), database.unfinished)
        pairs = [(one.work.delivery.claim, one.verdict.settlement) for one in finished] if finished else ()
        try:
            turned = database.turn(pairs, limit, in_flight.pass_over() if in_flight.by_key else NOBODY)
        except Exception as error:  # sorted by what the dialect makes of it
            trouble = database.classify(error)
            if limit and trouble is Trouble.LOST:  # and with it the answer: rows may have been claimed for nobody
                self._poll_timer.due(monotonic(), database.lease)
            if not finished or trouble is not Trouble.PERMANENT:
                raise
            settle_singly(in_flight, self._try_to_settle, self._runner.rules, database.now)
            return
        if finished:
            in_flight.unsettled = []
            self._settled(finished, turned)
        if self.outage.error is not None:
            self._recovered()
        if limit:
            self._claimed(turned.claims, limit, now, wakes)

    def _settled(self, finished: Sequence[Finished], turned: Turned) -> None:
        """Take settled rows out of what is in flight, and say what became of them."""
        lost, gone = set(turned.lost), set(turned.gone)
        if lost:
            for one in finished:
                if one.work.delivery.claim in lost:
                    self._lose(one.work)
            finished = [one for one in finished if one.work.delivery.claim not in lost]
        for due in self._in_flight.settled(finished, gone):
            if due is None:
                self._nothing_since = -1
            now, due_in = monotonic(), 0.0 if due is None else (due - self._database.now()).total_seconds()
            self._poll_timer.due(now, due_in)
            if self._in_flight.by_key:
                self._poll_timer.due(now, due_in + FREE_KEYS)
        for one in finished:
            self.report.record(one, gone=one.work.delivery.claim in gone)

    def _lose(self, work: Work) -> None:
        """The row belongs to somebody else."""
        work.delivery.lose()
        self.report.late(work)
        self._in_flight.drop(work)

    def _claimed(self, claims: Sequence[Claim], limit: int, began: float, wakes: int) -> None:
        """Hand claimed rows to the workers, and decide when to claim next. Their leases count from when the claim
        `began`, for it may have waited long for the database."""
        in_flight = self._in_flight
        if claims:
            self._lease_timer.written(began)
            at = self._runner.reader.key_at
            works = [Work(Delivery(self._queue, claim), None if at is None else claim.row[at]) for claim in claims]
            stay = in_flight.claimed(works)
            for work in stay if self._observers.any else ():
                self._observers.tell("claimed", work.delivery)
        if in_flight.begun:
            in_flight.hand_out()
        if len(claims) >= limit:
            self._poll_timer.full(monotonic())
            return
        moment = self._database.now()
        ahead = self._database.look_ahead(moment, in_flight.pass_over() if in_flight.by_key else NOBODY)
        now, due_in = monotonic(), self._poll_timer.due_in(ahead, moment)
        self._poll_timer.short(now, due_in=due_in, hidden=ahead.hidden, certain=not ahead.hidden and self._certain())
        if self._poll_timer.at > now:  # not where a row of this very turn is due again
            self._nothing_since = wakes
        if self._observers.any:
            self._observers.tell("looked")

    # -- leases, refusals and trouble -------------------------------------------------------------------------

    def _extend(self, now: float) -> None:
        """Extend the leases of all that is in flight, once half of the oldest has passed. One that waits long for the
        database writes leases that have begun long ago: they count from `now`."""
        self._lease_timer.failed(now)  # until it went through
        works = {work.delivery.claim: work for work in self._in_flight.to_extend()}
        if works:
            lost = self._database.extend(list(works))
            for claim in lost:
                self._lose(works[claim])
            if self._observers.any:
                self._observers.tell("extended", detail=len(works) - len(lost))
            if self.outage.error is not None and not self._in_flight.unsettled and self._in_flight.room <= 0:
                self._recovered()  # there is no turn that would tell
        self._lease_timer.extended(now, bool(works))

    def _try_to_settle(self, one: Finished) -> Exception | None:
        """Settle one row; the error where the database refuses that."""
        claim = one.work.delivery.claim
        try:
            turned = self._database.turn([(claim, one.verdict.settlement)], 0)
        except Exception as error:  # sorted by what the dialect makes of it
            if self._database.classify(error) is not Trouble.PERMANENT:
                raise
            log.error("queue %s: row %r: it could not be %s", self._queue, claim.id, one.verdict.kind, exc_info=error)
            return error
        self._settled([one], turned)
        return None

    def _trouble(self, error: Exception) -> None:
        trouble = self._database.classify(error)
        if trouble is Trouble.CLOSED:
            self.fatal = error
        permanent = trouble is Trouble.PERMANENT
        pause = self._poll_timer.trouble(monotonic(), spread=random.random(), permanent=permanent)  # noqa: S311 - jitter
        self.outage.begin(trouble, error, pause)
        if self._observers.any:
            self._observers.tell("trouble", detail=self.outage.error)

    def _recovered(self) -> None:
        self._poll_timer.recovered()
        if self.outage.end() and self._observers.any:
            self._observers.tell("recovered")
