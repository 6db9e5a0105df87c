"""Settlement: who settles a row, and what became of a queue's rows: counted, logged, and told to observers."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from threading import Condition, Lock

import attrs

from sqlqueue.consumer.in_flight import InFlight
from sqlqueue.consumer.run_handler import Finished, Work
from sqlqueue.dialect import Connection
from sqlqueue.observers import Observers
from sqlqueue.outcome import Move, Rules, refused

log = logging.getLogger("sqlqueue")


@attrs.define(eq=False)
class Report:
    """What became of one queue's rows; safe to call from many threads.

    `settled`: how many rows were settled; `released`: how many were given back unhandled.
    """

    queue: str
    observers: Observers
    settled: int = attrs.field(default=0, init=False)
    released: int = attrs.field(default=0, init=False)
    _warned: bool = attrs.field(default=False, init=False)
    _lock: Lock = attrs.field(factory=Lock, init=False)

    def record(self, one: Finished, *, gone: bool) -> None:
        """A row was settled; `gone`: it was not there any more."""
        verdict, move = one.verdict, one.verdict.settlement.move
        with self._lock:  # other workers count as well
            if move is Move.RELEASE:
                self.released += 1
            else:
                self.settled += 1
        if move is Move.DEAD_LETTER and not gone:
            self.observers.dead_lettered()
        if verdict.problem:
            log.error("queue %s: row %r %s: %s", self.queue, one.work.delivery.claim.id, verdict.kind, verdict.problem)
        elif verdict.kind == "dropped":
            reason = verdict.remark or "it gave no reason"
            log.info("queue %s: row %r was dropped by its handler: %s", self.queue, one.work.delivery.claim.id, reason)
        if self.observers.any:
            kind = "gone" if gone else verdict.kind
            self.observers.tell(kind, one.work.delivery, seconds=one.seconds, detail=verdict.problem)
        if one.then is not None:
            one.then(one)

    def late(self, work: Work) -> None:
        """What becomes of this row changes nothing. That is reported once: when it is found out, or at its settlement,
        whichever is first."""
        with self._lock:  # decided: who reports it
            reported, work.lost_reported = work.lost_reported, True
        if reported:
            return
        log.warning(
            "queue %s: row %r: LeaseLost: it was given back, or its lease or lock ended before its settlement, which "
            "changes nothing; it is delivered again",
            self.queue,
            work.delivery.claim.id,
        )
        if self.observers.any:
            self.observers.tell("lease_lost", work.delivery)

    def cannot_hide(self) -> None:
        """A row asked to wait, and the table has no column that could hide it; logged once."""
        with self._lock:  # decided: who logs it
            warned, self._warned = self._warned, True
        if warned:
            return
        log.warning(
            "queue %s: a row asked to wait, and the table has nothing to hide it by: it is due at once, and claims "
            "pause for up to a poll interval instead; add a column (due_at: datetime | None = column.retry_after())",
            self.queue,
        )


def refusal(one: Finished, rules: Rules, error: BaseException, now: datetime) -> Finished:
    """What becomes of a row whose settlement the database refused with `error`: that is a failure of the row, and its
    policy decides. `rules`: those of its queue."""
    verdict = refused(one.work.rules or rules, one.work.delivery.claim.attempt, one.verdict, error, now)
    return attrs.evolve(one, verdict=verdict)


def settle_singly(
    in_flight: InFlight, settle: Callable[[Finished], Exception | None], rules: Rules, now: Callable[[], datetime]
) -> None:
    """Settle what is unsettled one row at a time, so that a row which is refused keeps no other.

    `settle` returns the error where the database refuses it. A row that is refused failed: its policy says where it
    goes, and one whose dead letter is refused is kept otherwise. If all of that is refused, its lease ends by itself.
    What `settle` raises passes, with the rest still unsettled.
    """
    unsettled = in_flight.unsettled
    while unsettled:
        one = unsettled[-1]
        tried, error = one, settle(one)
        while error is not None and (tried is one or tried.verdict.settlement.move is Move.DEAD_LETTER):
            tried = refusal(tried, rules, error, now())
            error = settle(tried)
        unsettled.remove(one)
        if error is not None:
            in_flight.drop(one.work)


class RowsInWork:
    """The rows whose handlers are at work, each with its connection.

    Who takes rows out of work settles them, and says so when that is done. `claiming`: claims under way, `settling`:
    rows taken out of work and not settled. `closed`: whether no row may come to work any more. `changed` is the lock
    over all of it; what changes a field from outside holds it.
    """

    def __init__(self) -> None:
        self.changed = Condition()
        self.claiming = self.settling = 0
        self.closed = False
        self.in_work: dict[Work, Connection] = {}
        self._extending: Sequence[Work] = ()
        self._unextended: set[Work] = set()

    def __len__(self) -> int:
        with self.changed:  # a row that goes from work to its settlement counts once
            return len(self.in_work) + self.settling

    def extend_no_more(self, work: Work) -> None:
        """Extend the row's lease no more; an extension under way is over by then."""
        with self.changed:  # decided: whose leases are extended
            self.changed.wait_for(lambda: work not in self._extending)
            self._unextended.add(work)

    def take(self, works: Sequence[Work]) -> bool:
        """Take rows out of work to settle them, all of them or none; False where somebody else has. An extension of
        their leases, which moves their tokens, is over by then."""
        with self.changed:  # decided: who settles the rows
            if self._extending:
                self.changed.wait_for(lambda: not any(work in self._extending for work in works))
            for work in works:
                if work not in self.in_work:
                    return False
            for work in works:
                del self.in_work[work]
                self._unextended.discard(work)
            self.settling += len(works)
            return True

    def done(self, count: int) -> None:
        """So many rows that were taken out of work are settled, or lost."""
        with self.changed:  # decided: whether whoever waits may go on
            self.settling -= count
            self.changed.notify_all()

    @contextmanager
    def extending(self) -> Iterator[Sequence[Work]]:
        """The rows whose leases are to be extended; none of them is settled for the while."""
        with self.changed:  # decided: whose tokens move
            self._extending = tuple(work for work in self.in_work if work not in self._unextended)
        try:
            yield self._extending
        finally:
            with self.changed:  # decided: which rows may be settled
                self._extending = ()
                self.changed.notify_all()

    def close(self, timeout: float) -> Sequence[tuple[Work, Connection]]:
        """No row comes to work any more; take all that are, after what is under way, within so many seconds."""
        with self.changed:  # decided: who settles what is left
            self.closed = True
            self.changed.wait_for(lambda: not (self.claiming or self.settling), timeout)
            taken = list(self.in_work.items())
            self.in_work.clear()
            self.settling += len(taken)
            return taken
