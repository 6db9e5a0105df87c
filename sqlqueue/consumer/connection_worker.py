"""One worker's seat: a connection, the row that it holds, and its turns.

One worker's seat where a handler takes batches: a connection, the rows that it holds, and its turns.
"""

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from threading import Event
from typing import TYPE_CHECKING

import attrs

from sqlqueue.consumer.run_handler import RELEASED, BatchRunner, Finished, Work
from sqlqueue.consumer.transactional import run_in, told
from sqlqueue.consumer.workers import OnStop
from sqlqueue.delivery import Delivery
from sqlqueue.dialect import Connection, Trouble
from sqlqueue.errors import TransactionError
from sqlqueue.outcome import RELEASE, Move, refused
from sqlqueue.strategies.claim import NOBODY, Claim
from sqlqueue.strategies.transaction import Transaction

if TYPE_CHECKING:
    from sqlqueue.consumer.worker_group import WorkerGroup

log = logging.getLogger("sqlqueue")


#: Tries of a settlement that trying again may mend, and the pause in seconds after the first, which doubles.
TRIES, FIRST_PAUSE = 6, 0.05

#: Seconds to wait for one of the pool's connections.
PATIENCE = 10.0

#: Nobody sets it: its wait is a pause.
NEVER = Event()


@attrs.define(eq=False)
class ConnectionWorker:
    """Works a queue off, one row at a time. `unsettled`: the row whose settlement is not known to be done."""

    seats: "WorkerGroup"
    on_stop: OnStop
    unsettled: Finished | None = None

    def sit(self, connection: Connection) -> None:
        """Claim and handle on this connection until nothing is found, or it is wanted elsewhere."""
        if self.seats.shared.transactional:
            connection = Transaction(connection, self.seats.shared.begin)  # type: ignore[arg-type]  # it is a Session
        work = self._look(connection)
        while work is not None:
            finished = self._handle(connection, work)
            if finished.stop is not None:
                self.on_stop(finished.stop)  # first, so that the row that goes back is not claimed again
            if not self.seats.take_back(work):
                return
            work = self._settle_and_look(connection, finished)
            if finished.trouble is not None:
                raise finished.trouble

    def _handle(self, connection: Connection, work: Work) -> Finished:
        if self.seats.stopping:  # since the look that found it began
            return Finished(work, RELEASED)
        shared = self.seats.shared
        if not isinstance(connection, Transaction):
            return shared.runner.run(work)
        before = self.seats.in_hand.keep_no_more if shared.one_writer else None
        return run_in(connection, work, shared.runner, before)

    def _settle_and_look(self, connection: Connection, finished: Finished) -> Work | None:
        seats, shared = self.seats, self.seats.shared
        if isinstance(connection, Transaction) and not finished.verdict.settlement.keeps:
            finished, held = self._undo(connection, finished)
            if not held:
                self._settle_elsewhere(connection, finished)
                seats.more()
                return None
        together = not shared.one_at_a_time and not shared.settles_first
        look = finished.trouble is None and seats.may_go_on(finished.verdict.settlement)
        look = look and not (isinstance(connection, Transaction) and connection.last)
        work = self._settle(connection, finished, look=look and together)
        if look and not together and not connection.closed:
            return self._look(connection)
        if work is None and (not look or connection.closed):
            seats.more()
        return work

    def _look(self, connection: Connection) -> Work | None:
        seats, shared = self.seats, self.seats.shared
        with seats.turnstile if shared.one_at_a_time else nullcontext():
            seats.free_keys(lambda id: shared.strategy.unfinished(connection, id))
            return self._turn(connection, None, look=True)

    def _turn(self, connection: Connection, finished: Finished | None, *, look: bool) -> Work | None:
        """Settle, claim, or both, in one round trip; the row claimed."""
        with self.seats.in_hand.turn(look) as may_look:
            return self._turn_now(connection, finished, look=may_look)

    def _turn_now(self, connection: Connection, finished: Finished | None, *, look: bool) -> Work | None:
        seats, shared = self.seats, self.seats.shared
        begun = seats.begin_look() if look else None
        pass_over = begun.pass_over if begun else NOBODY
        settlements = [(finished.work.delivery.claim, finished.verdict.settlement)] if finished else []
        turned = shared.strategy.turn(connection, settlements, int(look), shared.now(), pass_over)
        if finished is not None:
            self.unsettled = None
            if turned.lost:
                seats.lose(finished.work)
            else:
                seats.settled(finished, gone=bool(turned.gone))
        if turned.failed is not None:
            raise turned.failed
        if begun is None or connection.closed:
            return None
        if turned.claims:
            (claim,) = turned.claims
            work = Work(Delivery(shared.queue, claim), shared.runner.reader.raw_key(claim.row))
            seats.found(work, connection, self)
            return work
        ahead = shared.strategy.look_ahead(connection, shared.now(), pass_over, seats.held_unseen)
        seats.found_nothing(ahead, begun, self)
        return None

    def _undo(self, transaction: Transaction, one: Finished) -> tuple[Finished, bool]:
        """Undo what the handler wrote, and tell where it had ended its transaction; whether the row is still held,
        which it never is on a connection that is closed by now."""
        shared, claim, held = self.seats.shared, one.work.delivery.claim, False
        try:
            held = transaction.undo()
        except TransactionError as ended:
            one = told(one, str(ended), shared.runner)
        except Exception as error:  # noqa: BLE001 - its connection may be lost
            log.debug("queue %s: row %r: %r", shared.queue, claim.id, error)
        if held or transaction.closed:
            return one, not transaction.closed
        try:
            return one, shared.strategy.hold_again(transaction, claim)
        except Exception as error:  # noqa: BLE001 - the same
            log.debug("queue %s: row %r: %r", shared.queue, claim.id, error)
            transaction.close()  # and with it whatever it holds
            return one, False

    def _settle_elsewhere(self, connection: Transaction, one: Finished) -> None:
        """Settle a row whose connection is closed on another one of the pool; where that fails it returns by itself."""
        shared, held = self.seats.shared, False
        pool = shared.budget.pool
        try:
            if connection.closed:  # else somebody else has it by now
                pool.probe()  # it says at once that the server is away; the pool would wait for it
                with pool.connection(PATIENCE) as lent:
                    another = Transaction(lent, shared.begin)  # type: ignore[arg-type]  # it is a Session
                    held = self._taken_over(another, one.work)
                    if held:
                        self._settle(another, one, look=False)
        finally:
            if not held:
                self.abandon(one.work, connection)

    def _taken_over(self, connection: Transaction, work: Work) -> bool:
        """Whether the row could be held on this connection; what its session held is free only some time after that was
        closed."""
        strategy, claim = self.seats.shared.strategy, work.delivery.claim
        for number in range(TRIES if strategy.by_session else 1):
            if strategy.take_over(connection, claim):
                return True
            if not strategy.unfinished(connection, claim.id):
                return False
            NEVER.wait(FIRST_PAUSE * 2**number)
        return False

    def _settle(self, connection: Connection, finished: Finished, *, look: bool) -> Work | None:
        """Settle the row, and claim the next where asked; a settlement that is refused is made otherwise."""
        self.unsettled = finished
        try:
            return self._turn(connection, finished, look=look)
        except Exception as error:  # sorted by what the dialect makes of it
            if self.unsettled is None:
                raise
            self._settle_otherwise(connection, finished, error)
            self.seats.more()  # it has not looked
            return None

    def settle_again(self, connection: Connection, one: Finished) -> None:
        """Settle a row by itself whose settlement together with others failed, while it is, or can be, held."""
        self.unsettled = one
        try:
            if self.seats.shared.strategy.hold_again(connection, one.work.delivery.claim):
                self._turn(connection, one, look=False)
                return
        except Exception as error:  # sorted by what the dialect makes of it
            if self.unsettled is None:
                raise
            self._settle_otherwise(connection, one, error)
            return
        self.abandon(one.work, connection)  # somebody else has it by now

    def _settle_otherwise(self, connection: Connection, one: Finished, error: Exception) -> None:
        """Settle a row again whose settlement failed with `error`, while it is held; else it returns by itself.

        What may pass is tried again. A refusal is a failure of the row: its policy says where it goes, and one
        whose dead letter is refused is kept otherwise.
        """
        shared, claim = self.seats.shared, one.work.delivery.claim
        before = False
        for number in range(TRIES):
            trouble = shared.classify(error)
            if trouble in (Trouble.LOST, Trouble.CLOSED):
                break
            if trouble is Trouble.PERMANENT or (shared.transactional and one.verdict.settlement.keeps):
                last = before and one.verdict.settlement.move is not Move.DEAD_LETTER
                one = self._refused(one, error)
                if last:
                    break
                before = True
            try:
                if isinstance(connection, Transaction):
                    connection.roll_back()
                if not shared.strategy.hold_again(connection, claim):
                    if connection.closed:
                        break
                    self.abandon(one.work, connection)  # somebody else has it by now
                    return
                if trouble is not Trouble.PERMANENT:
                    NEVER.wait(FIRST_PAUSE * 2**number)
                self._turn(connection, one, look=False)
                return
            except Exception as further:  # sorted above, in the next round
                if self.unsettled is None:
                    raise
                error = further
        self.abandon(one.work, connection)
        raise error

    def _refused(self, one: Finished, error: Exception) -> Finished:
        """What becomes of a row whose settlement the database refused."""
        shared, delivery = self.seats.shared, one.work.delivery
        log.error(
            "queue %s: row %r: it could not be %s", shared.queue, delivery.claim.id, one.verdict.kind, exc_info=error
        )
        rules = one.work.rules or shared.runner.rules
        verdict = refused(rules, delivery.attempt, one.verdict, error, shared.now())
        return attrs.evolve(one, verdict=verdict)

    def abandon(self, work: Work, connection: Connection) -> None:
        """Hold a row no longer that cannot be settled."""
        self.seats.lose(work)
        self.seats.shared.strategy.let_go(connection, work.delivery.claim)

    def give_back(self, work: Work, connection: Connection) -> None:
        """Give back a row whose handler is still at work: what that does comes too late."""
        work.delivery.lose()
        if isinstance(connection, Transaction):
            self._cut_off(work, connection)
            return
        self.unsettled = Finished(work, RELEASED)
        try:
            self._turn(connection, self.unsettled, look=False)
        except Exception:  # its connection may be lost, or in the handler's hands
            log.exception("queue %s: row %r could not be given back", self.seats.shared.queue, work.delivery.claim.id)
            if self.unsettled is not None:
                self.abandon(work, connection)

    def _cut_off(self, work: Work, transaction: Transaction) -> None:
        """The same where the connection is the handler's: a lease is given back on another one, else the row is free
        when its session ends."""
        shared, claim = self.seats.shared, work.delivery.claim
        try:
            if claim.expires is None:
                transaction.close()
                shared.strategy.let_go(transaction, claim)
            else:
                with shared.budget.pool.direct() as spare:
                    aside = Transaction(spare, None)  # type: ignore[arg-type]  # it is a Session
                    shared.strategy.turn(aside, [(claim, RELEASED.settlement)], 0, shared.now())
        except Exception:  # the handler's transaction may be in the way
            log.exception("queue %s: row %r could not be given back", shared.queue, claim.id)
        self.seats.lose(work)


#: What trying again does not mend.
FINAL = (Trouble.LOST, Trouble.CLOSED, Trouble.PERMANENT)


@attrs.define(eq=False)
class BatchConnectionWorker(ConnectionWorker):
    """Works a queue off, a batch at a time. The rows of a batch are settled in one turn, and where that is refused one
    by one, as a seat settles its row. `_open`: whether it is not known that a batch's settlement is done."""

    _open: bool = False

    def sit(self, connection: Connection) -> None:
        works = self._look_for_batch(connection)
        while works:
            finished = self._handle_batch(works)
            for stop in [one.stop for one in finished if one.stop is not None]:
                self.on_stop(stop)  # first, so that the rows that go back are not claimed again
            if not self._take_back(works):
                return
            works = self._settle_and_look_on(connection, finished)

    def _handle_batch(self, works: Sequence[Work]) -> Sequence[Finished]:
        if self.seats.stopping:  # since the look that found it began
            return [Finished(work, RELEASED) for work in works]
        runner = self.seats.shared.runner
        assert isinstance(runner, BatchRunner)
        return runner.run_batch(works)

    def _take_back(self, works: Sequence[Work]) -> bool:
        """Whether the rows are still ours to settle, all of them or none."""
        mine = self.seats.in_hand.take_all(works)
        for work in () if mine else works:
            self.seats.report.late(work)
        return mine

    def _settle_and_look_on(self, connection: Connection, finished: Sequence[Finished]) -> Sequence[Work]:
        seats, together = self.seats, not self.seats.shared.one_at_a_time
        look = all(seats.may_go_on(one.verdict.settlement) for one in finished)
        works = self._settle_batch(connection, finished, look=look and together)
        if look and not together and not connection.closed:
            return self._look_for_batch(connection)
        if not works and (not look or connection.closed):
            seats.more()
        return works

    def _look_for_batch(self, connection: Connection) -> Sequence[Work]:
        seats, shared = self.seats, self.seats.shared
        with seats.turnstile if shared.one_at_a_time else nullcontext():
            seats.free_keys(lambda id: shared.strategy.unfinished(connection, id))
            return self._turn_batch(connection, (), look=True)

    def _turn_batch(self, connection: Connection, finished: Sequence[Finished], *, look: bool) -> Sequence[Work]:
        """Settle, claim, or both, in one round trip; the rows claimed."""
        with self.seats.in_hand.turn(look) as may_look:
            return self._turn_batch_now(connection, finished, look=may_look)

    def _turn_batch_now(self, connection: Connection, finished: Sequence[Finished], *, look: bool) -> Sequence[Work]:
        seats, shared = self.seats, self.seats.shared
        begun = seats.begin_look() if look else None
        pass_over = begun.pass_over if begun else NOBODY
        settlements = [(one.work.delivery.claim, one.verdict.settlement) for one in finished]
        turned = shared.strategy.turn(connection, settlements, shared.batch if look else 0, shared.now(), pass_over)
        self._open = False
        gone = {id(claim) for claim in turned.gone}
        for one in finished:
            seats.settled(one, gone=id(one.work.delivery.claim) in gone)
        if turned.failed is not None:
            raise turned.failed
        if begun is None or connection.closed:
            return ()
        if turned.claims:
            works = self._in_order(connection, turned.claims)
            if works:
                seats.found(works[0], connection, self, works[1:])
            return works
        ahead = shared.strategy.look_ahead(connection, shared.now(), pass_over, seats.held_unseen)
        seats.found_nothing(ahead, begun, self)
        return ()

    def _in_order(self, connection: Connection, claims: Sequence[Claim]) -> Sequence[Work]:
        """The claimed rows; by key the first of each, for the next may run once that one is settled."""
        shared = self.seats.shared
        key = shared.runner.reader.raw_key
        works = [Work(Delivery(shared.queue, claim), key(claim.row)) for claim in claims]
        if not shared.by_key:
            return works
        first = {work.key: work for work in reversed(works)}
        behind = [work for work in works if work.key is not None and first[work.key] is not work]
        if behind and not shared.strategy.one_transaction:  # in one they stay locked as long as the others
            self._part_with(connection, behind, works)
        return [] if connection.closed else [work for work in works if work not in behind]

    def _part_with(self, connection: Connection, behind: Sequence[Work], works: Sequence[Work]) -> None:
        """Give back those of the rows that must wait for others; where that fails, hold none of them."""
        strategy = self.seats.shared.strategy
        parted = False
        try:
            settlements = [(work.delivery.claim, RELEASE) for work in behind]
            strategy.turn(connection, settlements, 0, self.seats.shared.now())
            parted = not connection.closed
        finally:
            if not parted:
                for work in works:
                    strategy.let_go(connection, work.delivery.claim)
                connection.close()

    def _settle_batch(self, connection: Connection, finished: Sequence[Finished], *, look: bool) -> Sequence[Work]:
        """Settle the rows, and claim the next where asked; where that is refused, each by itself."""
        self._open = True
        try:
            return self._turn_batch(connection, finished, look=look)
        except Exception as error:  # sorted by what the dialect makes of it
            if not self._open:
                raise
            further = self._settle_once_more(connection, finished, error)
            if further is not None:
                self._settle_singly(connection, finished, further)
            self.seats.more()  # it has not looked
            return ()

    def _settle_once_more(
        self, connection: Connection, finished: Sequence[Finished], error: Exception
    ) -> Exception | None:
        """Try the settlement of a batch again that failed with `error`, where that may pass and the rows are held
        meanwhile; what it failed with at last, None where they are settled."""
        shared = self.seats.shared
        for number in range(TRIES):
            if shared.strategy.one_transaction or shared.classify(error) in FINAL:
                break
            if not shared.strategy.hold_again(connection, finished[0].work.delivery.claim):
                break
            NEVER.wait(FIRST_PAUSE * 2**number)
            try:
                self._turn_batch(connection, finished, look=False)
                return None
            except Exception as further:  # sorted above, in the next round
                if not self._open:
                    raise
                error = further
        return error

    def _settle_singly(self, connection: Connection, finished: Sequence[Finished], error: Exception) -> None:
        """Settle the rows of a batch, of which none is settled, so that one of them keeps no other. Where that is no
        use, hold them no longer.

        Raises, after the last of them, what kept one from being settled.
        """
        shared = self.seats.shared
        trouble = shared.classify(error)
        lost = trouble in (Trouble.LOST, Trouble.CLOSED) or not (
            shared.strategy.one_transaction or trouble is Trouble.PERMANENT
        )
        failed = error if lost else None
        if not lost:
            log.warning(
                "queue %s: a batch of %d rows could not be settled as one (%s: %s); each row is settled by itself",
                shared.queue,
                len(finished),
                type(error).__name__,
                error,
            )
        for one in finished:
            if lost or connection.closed:
                self.abandon(one.work, connection)
                continue
            try:
                self.settle_again(connection, one)
            except Exception as further:  # noqa: BLE001 - raised once the others are settled
                failed = further
        if failed is not None:
            raise failed
