"""Deliveries whose handlers write where their row is settled: the transaction, what handlers do to it, and the leases
that are extended beside it."""

import logging
from collections.abc import Callable, Sequence
from threading import Event, Thread
from time import monotonic
from typing import Any

import attrs

from sqlqueue.connection import ENDED
from sqlqueue.consumer.budget import Database
from sqlqueue.consumer.run_handler import RELEASED, Finished, Runner, Work
from sqlqueue.consumer.settling import RowsInWork
from sqlqueue.consumer.workers import GroupPlan
from sqlqueue.errors import TransactionError
from sqlqueue.observers import Observers
from sqlqueue.outcome import decide, noted
from sqlqueue.strategies.claim import ConnectionStrategy
from sqlqueue.strategies.transaction import Transaction, collect_calls, collected_calls, unacknowledged

log = logging.getLogger("sqlqueue")

#: Whoever ended it: SQLite may undo a transaction by itself, such as on a full disk.
STAYS = "its delivery's transaction was committed or rolled back before; what was committed is not undone"


#: Nobody sets it: its wait is a pause.
PAUSE = Event()

#: Extensions in the time of one lease, so that one that failed has another chance.
PARTS = 4


@attrs.define(eq=False)
class Lending:
    """A delivery's transaction, which begins when it is opened. `before`: called first, with the work. `trouble`: why
    it did not begin."""

    transaction: Transaction
    work: Work
    before: Callable[[Work], None] | None
    connection: Any = None
    trouble: Exception | None = None

    def open(self) -> None:
        if self.before is not None:
            self.before(self.work)
        try:
            self.connection = self.transaction.lend()
        except Exception as error:
            self.trouble = error
            raise
        collect_calls(self.connection)
        self.work.delivery.lend(self.connection)

    def end(self) -> tuple[str | None, Sequence[Callable[[], Any]]]:
        """Take the connection back: what the handler did to it that it must not, and what is to be called once its
        writes are committed."""
        self.work.delivery.end()
        calls = collected_calls(self.connection)
        self.connection = None  # whatever refers to it from here on is the handler's
        return self.transaction.take_back(), calls


def run_in(
    transaction: Transaction, work: Work, runner: Runner, before: Callable[[Work], None] | None = None
) -> Finished:
    """Run the handler with its delivery's connection. Where that cannot be lent the row goes back, with `trouble`.

    `before`: called before a transaction begins.
    """
    lending = Lending(transaction, work, before)
    if runner.opens:
        work.delivery.opens_by(lending.open)
    else:
        try:
            lending.open()
        except Exception as error:  # noqa: BLE001 - the database's; it is raised again behind the settlement
            return Finished(work, RELEASED, trouble=error)
    finished = runner.run([work])[0]
    if lending.trouble is not None:
        return Finished(work, RELEASED, trouble=lending.trouble)
    if lending.connection is None:
        work.delivery.end()
        return finished
    problem, calls = lending.end()
    if problem is not None:
        return (_failed if finished.verdict.settlement.keeps else _with_note)(finished, problem, runner)
    if not finished.verdict.settlement.keeps:
        return finished
    return attrs.evolve(finished, then=_all(calls, finished.then)) if calls else finished


def _failed(finished: Finished, problem: str, runner: Runner) -> Finished:
    work = finished.work
    error = unacknowledged(problem)
    runner.log_failed(work.delivery, error)
    verdict = decide(work.rules or runner.rules, work.delivery.claim.attempt, error, runner.now())
    return attrs.evolve(finished, verdict=verdict)


def _with_note(finished: Finished, problem: str, runner: Runner) -> Finished:
    """The same of a handler that did not return, whose outcome says where the row goes all the same."""
    note = f"beside that, {STAYS if problem == ENDED else problem}"
    runner.log_failed(finished.work.delivery, TransactionError(note))
    return attrs.evolve(finished, verdict=noted(finished.verdict, note))


def _all(calls: Sequence[Callable[[], Any]], then: Callable[[Finished], None] | None) -> Callable[[Finished], None]:
    def call_all(finished: Finished) -> None:
        for call in calls:
            call()
        if then is not None:
            then(finished)

    return call_all


def undone(transaction: Transaction, one: Finished, plan: GroupPlan) -> tuple[Finished, bool]:
    """Undo what the handler wrote, and note where it had ended its transaction; whether the row is still held, which it
    never is on a connection that is closed by now."""
    claim, held = one.work.delivery.claim, False
    try:
        held = transaction.undo()
    except TransactionError as ended:
        one = _with_note(one, str(ended), plan.runner)
    except Exception as error:  # noqa: BLE001 - its connection may be lost
        log.debug("queue %s: row %r: %r", plan.queue, claim.id, error)
    if held or transaction.closed:
        return one, not transaction.closed
    try:
        return one, plan.strategy.reclaim(transaction, claim)
    except Exception as error:  # noqa: BLE001 - the same
        log.debug("queue %s: row %r: %r", plan.queue, claim.id, error)
        transaction.close()  # and with it whatever it holds
        return one, False


def taken_over(connection: Transaction, work: Work, strategy: ConnectionStrategy, pauses: Sequence[float]) -> bool:
    """Whether the row could be held on this connection. What its session held is free only some time after that was
    closed: it is tried again after each of the `pauses`."""
    claim = work.delivery.claim
    for pause in pauses if strategy.by_session else pauses[:1]:
        if strategy.take_over(connection, claim):
            return True
        if not strategy.unfinished(connection, claim.id):
            return False
        PAUSE.wait(pause)
    return False


@attrs.define(eq=False)
class LeaseExtender:
    """Extends the leases of rows in work, on a thread of its own, until it is stopped. A delivery whose lease was lost
    is marked."""

    queue: str
    database: Database
    rows: RowsInWork
    observers: Observers
    _over: Event = attrs.field(factory=Event, init=False)
    _thread: Thread | None = attrs.field(default=None, init=False)

    def start(self) -> None:
        self._thread = Thread(target=self._run, name=f"sqlqueue-lease-extension {self.queue}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Extend nothing any more; returns when an extension under way is over."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        every = wait = self.database.lease / PARTS
        while not self._over.wait(wait):
            began = monotonic()
            try:
                self.extend()
            except Exception:  # the database's trouble, which the workers meet as well
                log.warning("queue %s: its leases could not be extended", self.queue, exc_info=True)
            # One that waits long for the database writes a lease that has begun long ago.
            wait = max(0.0, every - (monotonic() - began))

    def extend(self) -> None:
        """Extend the leases of all that is in work; rows that are being settled meanwhile wait for its end."""
        with self.rows.extending() as works:
            if not works:
                return
            by_claim = {id(work.delivery.claim): work for work in works}
            lost = self.database.extend([work.delivery.claim for work in works])
            for claim in lost:
                by_claim[id(claim)].delivery.lose()
        if self.observers.any:
            self.observers.tell("extended", detail=len(works) - len(lost))
