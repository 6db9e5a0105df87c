"""A connection worker: it claims, handles and settles on a connection of its own, and claims the next in one trip.

A row is a batch of one. Where a settlement of several rows is refused, each row is settled by itself.
"""

import logging
from collections.abc import Sequence
from threading import Event

import attrs

from sqlqueue.consumer.budget import BudgetSpent
from sqlqueue.consumer.run_handler import RELEASED, Finished, Work
from sqlqueue.consumer.settling import refusal
from sqlqueue.consumer.transactional import run_in, taken_over, undone
from sqlqueue.consumer.worker_group import WorkerGroup
from sqlqueue.consumer.workers import OnStop
from sqlqueue.delivery import Delivery
from sqlqueue.dialect import Connection, Trouble
from sqlqueue.outcome import RELEASE, Move
from sqlqueue.strategies.claim import NOBODY, Claim, Turn
from sqlqueue.strategies.transaction import Transaction

log = logging.getLogger("sqlqueue")

#: Tries of a settlement that another try may mend, and the pause in seconds after the first, which doubles.
TRIES, FIRST_PAUSE = 6, 0.05

#: Seconds to wait for one of the pool's connections.
PATIENCE = 10.0

#: Nobody sets it: its wait is a pause.
PAUSE = Event()


def work(group: WorkerGroup, on_stop: OnStop) -> None:
    """One worker's loop: claim whenever it is its turn, and handle and settle what it found, until the group stops."""
    plan, worker = group.plan, ConnectionWorker(group, on_stop)
    while group.admit(worker):
        try:
            with plan.budget.for_delivery(plan.queue, PATIENCE, group.is_stopping) as connection:
                worker.work_off(connection)
        except BudgetSpent:
            continue  # the pool is short: fewer rows are in work at once
        except Exception as error:  # noqa: BLE001 - the loop's edge: whatever went wrong is classified
            group.trouble(error, on_stop)
        finally:
            group.rest(worker)


def give_back(group: WorkerGroup, work: Work, connection: Connection) -> None:
    """Give back a row whose handler is still at work: what that does comes too late."""
    ConnectionWorker(group, lambda error: None).give_back(work, connection)


@attrs.define(eq=False)
class ConnectionWorker:
    """Works a queue off. `_open`: whether it is not known that a settlement is done. `_claimed`: whether the last turn
    claimed."""

    _group: WorkerGroup
    _on_stop: OnStop
    _open: bool = attrs.field(default=False, init=False)
    _claimed: bool = attrs.field(default=False, init=False)

    def work_off(self, connection: Connection) -> None:
        """Claim and handle on this connection until nothing is found, or it is wanted elsewhere."""
        group, plan = self._group, self._group.plan
        if plan.transactional:
            connection = Transaction(connection, plan.begin)  # type: ignore[arg-type]  # it is a Session
        works = self._claim(connection)
        while works:
            if group.stopping:  # since the claim that found them began
                finished: Sequence[Finished] = [Finished(one, RELEASED) for one in works]
            elif isinstance(connection, Transaction):
                before = group.rows.extend_no_more if plan.stops_extending else None
                finished = [run_in(connection, works[0], plan.runner, before)]
            else:
                finished = plan.runner.run(works)
            for one in finished:
                if one.stop is not None:
                    self._on_stop(one.stop)  # first, so that the rows that go back are not claimed again
            if not group.rows.take(works):  # they were given back meanwhile
                for work in works:
                    group.report.late(work)
                return
            works = self._settle_and_claim(connection, finished)
            for one in finished:
                if one.trouble is not None:
                    raise one.trouble

    # -- turns ------------------------------------------------------------------------------------------------

    def _settle_and_claim(self, connection: Connection, finished: Sequence[Finished]) -> Sequence[Work]:
        group, plan = self._group, self._group.plan
        if isinstance(connection, Transaction) and not finished[0].verdict.settlement.keeps:
            one, held = undone(connection, finished[0], plan)
            finished = [one]
            if not held:
                self._settle_elsewhere(connection, one)
                group.expect_more()
                return ()
        slots = plan.budget.slots
        claims = not (slots.waiting and slots.wanted(plan.queue))
        if isinstance(connection, Transaction):
            claims = claims and not connection.last and finished[0].trouble is None
        for one in () if plan.hides else finished:
            claims = claims and not (one.verdict.settlement.move is Move.RETRY and one.verdict.settlement.due)
        works = self._settle(connection, finished, claim=claims and not plan.settles_first)
        if claims and plan.settles_first and not connection.closed:
            works = self._claim(connection)
        if not works and not self._claimed:
            group.expect_more()
        return works

    def _claim(self, connection: Connection) -> Sequence[Work]:
        group, plan = self._group, self._group.plan
        if not plan.one_at_a_time:
            return self._turn(connection, (), claim=True)
        with group.one_claim:
            group.unblock_keys(lambda id: plan.strategy.unfinished(connection, id))
            return self._turn(connection, (), claim=True)

    def _turn(self, connection: Connection, finished: Sequence[Finished], *, claim: bool) -> Sequence[Work]:
        """Settle, claim, or both, in one round trip; the rows claimed."""
        group, plan = self._group, self._group.plan
        settlements = [(one.work.delivery.claim, one.verdict.settlement) for one in finished]
        round = group.begin_claim() if claim else None
        self._claimed = round is not None
        pass_over, limit = (NOBODY, 0) if round is None else (round.pass_over, plan.most)
        try:
            turn = Turn(settlements=settlements, limit=limit, now=plan.now(), pass_over=pass_over)
            turned = plan.strategy.turn(connection, turn)
            self._open = False
            if finished:
                group.settled(finished, turned)
            if turned.failed is not None:
                raise turned.failed
            if round is None:
                return ()
            if turned.claims:
                works = self._works(connection, turned.claims)
                if works:
                    group.found(round, works, connection, self)
                self._claimed = bool(works) or not connection.closed
                return works
            if connection.closed:
                self._claimed = False
                return ()
            ahead = plan.strategy.look_ahead(connection, plan.now(), pass_over, group.held_unseen())
            group.found_nothing(round, ahead, self)
            return ()
        finally:
            if round is not None and not round.over:
                group.end_claim(round)

    def _works(self, connection: Connection, claims: Sequence[Claim]) -> Sequence[Work]:
        """The claimed rows; by key the first of each, for the next may run once that one is settled."""
        plan = self._group.plan
        if not plan.by_key:
            return [Work(Delivery(plan.queue, claim)) for claim in claims]
        key = plan.runner.reader.raw_key
        works = [Work(Delivery(plan.queue, claim), key(claim.row)) for claim in claims]
        first = {work.key: work for work in reversed(works)}
        behind = [work for work in works if work.key is not None and first[work.key] is not work]
        if behind and not plan.strategy.one_transaction:  # in one they stay locked as long as the others
            self._part_with(connection, behind, works)
        return [] if connection.closed else [work for work in works if work not in behind]

    def _part_with(self, connection: Connection, behind: Sequence[Work], works: Sequence[Work]) -> None:
        """Give back those of the rows that must wait for others; where that fails, hold none of them."""
        plan = self._group.plan
        parted = False
        try:
            settlements = [(work.delivery.claim, RELEASE) for work in behind]
            plan.strategy.turn(connection, Turn(settlements=settlements, now=plan.now()))
            parted = not connection.closed
        finally:
            if not parted:
                for work in works:
                    plan.strategy.let_go(connection, work.delivery.claim)
                connection.close()

    # -- settlements that are refused -------------------------------------------------------------------------

    def _settle(self, connection: Connection, finished: Sequence[Finished], *, claim: bool) -> Sequence[Work]:
        """Settle the rows, and claim the next where asked; a settlement that is refused is made otherwise."""
        self._open = True
        try:
            return self._turn(connection, finished, claim=claim)
        except Exception as error:  # sorted by what the dialect makes of it
            if not self._open:
                raise
            self._settle_otherwise(connection, finished, error)
            self._claimed = False
            return ()

    def _settle_otherwise(self, connection: Connection, finished: Sequence[Finished], error: Exception) -> None:
        """Settle rows again whose settlement failed with `error`, while they are held; else they return by themselves.

        What may pass is tried again. Where several rows are refused each is settled by itself. The refusal of one row
        is a failure of the row: its policy says where it goes, and one whose dead letter is refused is kept otherwise.
        """
        plan, refused_before = self._group.plan, False
        for number in range(TRIES):
            trouble, one = plan.classify(error), finished[0]
            if trouble in (Trouble.LOST, Trouble.CLOSED):
                break
            if len(finished) > 1:
                if trouble is Trouble.PERMANENT or plan.strategy.one_transaction:
                    return self._settle_singly(connection, finished, error)
            elif trouble is Trouble.PERMANENT or (plan.transactional and one.verdict.settlement.keeps):
                last = refused_before and one.verdict.settlement.move is not Move.DEAD_LETTER
                finished = [self._refused(one, error)]
                if last:
                    break
                refused_before = True
            pause = 0.0 if trouble is Trouble.PERMANENT else FIRST_PAUSE * 2**number
            try:
                if self._retry_settlement(connection, finished, pause):
                    return None
                break  # its connection is closed
            except Exception as further:  # sorted above, in the next round
                if not self._open:
                    raise
                error = further
        self._abandon(connection, finished)
        raise error

    def _retry_settlement(self, connection: Connection, finished: Sequence[Finished], pause: float = 0.0) -> bool:
        """Settle rows after a `pause` whose settlement failed, if they are, or can be, held; False where the connection
        is closed."""
        self._open = True
        if isinstance(connection, Transaction):
            connection.roll_back()
        if self._group.plan.strategy.reclaim(connection, finished[0].work.delivery.claim):
            PAUSE.wait(pause)
            self._turn(connection, finished, claim=False)
        elif connection.closed:
            return False
        else:
            self._abandon(connection, finished)  # somebody else has them by now
        return True

    def _settle_singly(self, connection: Connection, finished: Sequence[Finished], error: Exception) -> None:
        """Settle each of several rows by itself, of which none is settled, so that one of them keeps no other.

        Raises, after the last of them, what kept one from being settled.
        """
        log.warning(
            "queue %s: a batch of %d rows could not be settled as one (%s: %s); each row is settled by itself",
            self._group.plan.queue,
            len(finished),
            type(error).__name__,
            error,
        )
        failed: Exception | None = None
        for one in finished:
            try:
                self._settle_alone(connection, one)
            except Exception as further:  # noqa: BLE001 - raised once the others are settled
                failed = further
        if failed is not None:
            raise failed

    def _settle_alone(self, connection: Connection, one: Finished) -> None:
        try:
            if connection.closed or not self._retry_settlement(connection, [one]):
                self._abandon(connection, [one])
        except Exception as error:  # sorted by what the dialect makes of it
            if not self._open:
                raise
            self._settle_otherwise(connection, [one], error)

    def _refused(self, one: Finished, error: Exception) -> Finished:
        """What becomes of a row whose settlement the database refused."""
        plan, id = self._group.plan, one.work.delivery.claim.id
        log.error("queue %s: row %r: it could not be %s", plan.queue, id, one.verdict.kind, exc_info=error)
        return refusal(one, plan.runner.rules, error, plan.now())

    def _abandon(self, connection: Connection, finished: Sequence[Finished]) -> None:
        """Hold rows no longer that cannot be settled."""
        for one in finished:
            self._group.lose(one.work)
            self._group.plan.strategy.let_go(connection, one.work.delivery.claim)

    # -- on other connections ---------------------------------------------------------------------------------

    def _settle_elsewhere(self, connection: Transaction, one: Finished) -> None:
        """Settle a row whose connection is closed on another one of the pool; where that fails it returns by itself."""
        plan, held = self._group.plan, False
        pool = plan.budget.pool
        try:
            if connection.closed:  # else somebody else has it by now
                pool.probe()  # it says at once that the server is away; the pool would wait for it
                with pool.connection(PATIENCE) as lent:
                    another = Transaction(lent, plan.begin)  # type: ignore[arg-type]  # it is a Session
                    held = taken_over(another, one.work, plan.strategy, [FIRST_PAUSE * 2**n for n in range(TRIES)])
                    if held:
                        self._settle(another, [one], claim=False)
        finally:
            if not held:
                self._abandon(connection, [one])

    def give_back(self, work: Work, connection: Connection) -> None:
        """Give back a row whose handler is still at work: what that does comes too late."""
        work.delivery.lose()
        if isinstance(connection, Transaction):
            self._cut_off(work, connection)
            return
        released = [Finished(work, RELEASED)]
        self._open = True
        try:
            self._turn(connection, released, claim=False)
        except Exception:  # its connection may be lost, or the handler uses it
            log.exception("queue %s: row %r could not be given back", self._group.plan.queue, work.delivery.claim.id)
            if self._open:
                self._abandon(connection, released)

    def _cut_off(self, work: Work, transaction: Transaction) -> None:
        """The same where the handler uses the connection: a lease is given back on another one, else the row is free
        when its session ends."""
        plan, claim = self._group.plan, work.delivery.claim
        try:
            if claim.expires is None:
                transaction.close()
                plan.strategy.let_go(transaction, claim)
            else:
                with plan.budget.pool.direct() as spare:
                    aside = Transaction(spare, None)  # type: ignore[arg-type]  # it is a Session
                    plan.strategy.turn(aside, Turn(settlements=[(claim, RELEASED.settlement)], now=plan.now()))
        except Exception:  # the handler's transaction may be in the way
            log.exception("queue %s: row %r could not be given back", plan.queue, claim.id)
        self._group.lose(work)
