"""Handle: a claimed row is read and given to its handler on a worker thread; what comes back is a verdict."""

import logging
from collections.abc import Callable
from datetime import datetime
from time import perf_counter
from typing import Any, ClassVar

import attrs

from sqlqueue.consumer.notices import Notices
from sqlqueue.delivery import Delivery, tell_processed
from sqlqueue.errors import DecodeError, PublishError
from sqlqueue.outcome import DeadLetter, Drop, Retry
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.rows import Reader
from sqlqueue.settling import ACKNOWLEDGED, Rules, Verdict, decide, spent_at_claim
from sqlqueue.strategies.base import RELEASE

log = logging.getLogger("sqlqueue")

UNSENT = "the handler returned an outgoing message, and nothing publishes it; register it with handler(reply_to=…)"

#: A handler that was stopped by one of these did not fail: its row goes back.
STOPS = (KeyboardInterrupt, SystemExit)


@attrs.define(eq=False)
class Work:
    """A claimed row on its way through this consumer.

    `key` is its partition key as the driver returned it; `leads`: whether it is the row of its key that may run;
    `told`: whether it was told that it is late; `rules`: how it settles, where not as all rows of its queue do.
    """

    delivery: Delivery
    key: Any = None
    leads: bool = False
    told: bool = False
    rules: Rules | None = None


RELEASED = Verdict(RELEASE, "released")


@attrs.frozen
class Finished:
    """What became of a piece of work. `stop` is set where the handler asked the process to end, `trouble` where the
    database kept it from beginning. `then` is called with it once it is settled."""

    work: Work
    verdict: Verdict
    seconds: float | None = None
    stop: BaseException | None = None
    trouble: Exception | None = None
    then: "Callable[[Finished], None] | None" = None


@attrs.define(eq=False)
class Runner:
    """Runs one queue's handler; safe to call from many threads. `opens`: whether it opens its deliveries' transactions
    itself, where they need one; else each has one."""

    opens: ClassVar[bool] = False

    queue: str
    reader: Reader
    rules: Rules
    now: Callable[[], datetime]
    notices: Notices
    call: Callable[[Any, Any], Any]
    _warned: bool = False

    def run(self, work: Work) -> Finished:
        """Read the row, run the handler, decide; every exception becomes a verdict."""
        delivery = work.delivery
        spent = spent_at_claim(self.rules, delivery.attempt)
        if spent is not None and self.rules.keeps:
            return Finished(work, spent)
        began = perf_counter()
        try:
            message = self.reader.read(delivery)
            if spent is not None:  # it is dropped, which a row that cannot be read must never be
                return Finished(work, spent)
            self.notices.tell("started", delivery)
            outcome = self.call(message, delivery)
        except STOPS as stop:
            return Finished(work, RELEASED, perf_counter() - began, stop)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises settles its row
            outcome = error
            self._log(delivery, error)
        seconds = perf_counter() - began
        verdict = ACKNOWLEDGED if outcome is None else self._decide(delivery, outcome)
        outcome = None  # an error refers to this frame: a cycle would keep what the handler held
        if not (delivery.asked and verdict.processed):
            return Finished(work, verdict, seconds)
        if delivery.opened and not verdict.settlement.keeps:  # what is written now would be undone
            return Finished(work, verdict, seconds, then=_tell_processed)
        tell_processed([delivery])
        return Finished(work, verdict, seconds)

    def _decide(self, delivery: Delivery, outcome: Any) -> Verdict:
        if _unsent(outcome):
            outcome = PublishError(UNSENT)
            self._log(delivery, outcome)
        if not isinstance(outcome, BaseException) and not self._warned:
            self._warned = True
            log.warning(
                "queue %s: its handler returned %r, which is no outcome and counts as done; return None, Retry, Drop "
                "or DeadLetter",
                self.queue,
                outcome,
            )
        return decide(self.rules, delivery.attempt, outcome, self.now())

    def tell_failed(self, delivery: Delivery, error: BaseException) -> None:
        """Log what made a delivery fail behind its handler."""
        log.error("queue %s: row %r: %s", self.queue, delivery.claim.id, error)

    def _log(self, delivery: Delivery, error: BaseException) -> None:
        if isinstance(error, Retry | Drop | DeadLetter):
            return
        if isinstance(error, DecodeError):
            log.error("queue %s: row %r: %s", self.queue, delivery.claim.id, error)
        else:
            log.error("queue %s: row %r: the handler failed", self.queue, delivery.claim.id, exc_info=error)


def _unsent(outcome: Any) -> bool:
    """Whether a handler that nothing publishes for returned messages."""
    parts = outcome if isinstance(outcome, list | tuple) else (outcome,)
    return any(isinstance(part, OutgoingMessage) for part in parts)


def _tell_processed(finished: Finished) -> None:
    if finished.verdict.processed:  # else its settlement was refused, and it was settled otherwise
        tell_processed([finished.work.delivery])
