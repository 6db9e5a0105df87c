"""One worker's seat where a handler takes batches: a connection, the rows that it holds, and its turns."""

import logging
from collections.abc import Sequence
from contextlib import nullcontext

import attrs

from sqlqueue.consumer.batch_runner import BatchRunner
from sqlqueue.consumer.handlers import RELEASED, Finished, Work
from sqlqueue.consumer.seat import FIRST_PAUSE, NEVER, TRIES, Seat
from sqlqueue.delivery import Delivery
from sqlqueue.dialect import Connection, Trouble
from sqlqueue.strategies.base import NOBODY, RELEASE, Claim

log = logging.getLogger("sqlqueue")

#: What trying again does not mend.
FINAL = (Trouble.LOST, Trouble.CLOSED, Trouble.PERMANENT)


@attrs.define(eq=False)
class BatchSeat(Seat):
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
