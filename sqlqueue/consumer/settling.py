"""What became of a queue's rows: counted, logged, and told to observers. Whoever settles a row reports it here."""

import logging
from collections.abc import Callable
from datetime import datetime
from threading import Lock

import attrs

from sqlqueue.consumer.in_flight import InFlight
from sqlqueue.consumer.run_handler import Finished, Work
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
