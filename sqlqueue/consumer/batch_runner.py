"""Handle: the rows of a batch are read and given to their handler as one list; what comes back is a verdict on each."""

import logging
from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import Any

import attrs

from sqlqueue.consumer.handlers import RELEASED, STOPS, Finished, Runner, Work
from sqlqueue.delivery import Delivery, tell_processed
from sqlqueue.outcome import DeadLetter, Drop, Retry
from sqlqueue.settling import ACKNOWLEDGED, describe_value, spent_at_claim

log = logging.getLogger("sqlqueue")

#: Ids of one batch that a line of the log shows.
MOST_SHOWN = 20


@attrs.define(eq=False)
class BatchRunner(Runner):
    """Runs one queue's handler of batches; safe to call from many threads."""

    def run_batch(self, works: Sequence[Work]) -> Sequence[Finished]:
        """Read the rows, run the handler on those that it may see, decide on each; in no order.

        A row that cannot be read, or that was spent when it was claimed, is settled beside the others; where no row is
        left the handler is not called.
        """
        messages: list[Any] = []
        readable: list[Work] = []
        finished: list[Finished] = []
        for work in works:
            unfit = self._read(work, messages)
            if unfit is None:
                readable.append(work)
            else:
                finished.append(unfit)
        if not readable:
            return finished
        if any(one.stop is not None for one in finished):
            return [*finished, *released(readable)]
        return [*finished, *self._handle(readable, messages)]

    def _read(self, work: Work, messages: list[Any]) -> Finished | None:
        """Append the row's message; what becomes of a row that its handler is not to see."""
        delivery = work.delivery
        spent = spent_at_claim(self.rules, delivery.attempt)
        if spent is not None and self.rules.parks:
            return Finished(work, spent)
        try:
            message = self.reader.read(delivery)
        except STOPS as stop:
            return Finished(work, RELEASED, stop=stop)
        except BaseException as error:  # noqa: BLE001 - a class or a codec of the user's may raise anything
            self._log(delivery, error)
            return Finished(work, self._decide(delivery, error))
        if spent is not None:  # it is dropped, which a row that cannot be read must never be
            return Finished(work, spent)
        messages.append(message)
        return None

    def _handle(self, works: Sequence[Work], messages: list[Any]) -> Iterable[Finished]:
        deliveries = [work.delivery for work in works]
        for delivery in deliveries:
            self.notices.tell("started", delivery)
        began = perf_counter()
        try:
            outcomes = one_per_row(self.call(messages, list(deliveries)), len(works))
        except STOPS as stop:
            return released(works, perf_counter() - began, stop)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises settles its rows
            outcomes = [error] * len(works)
            self._log_batch(deliveries, error)
        else:
            self._log_failures(deliveries, outcomes)
        seconds = perf_counter() - began
        finished = [
            Finished(work, ACKNOWLEDGED if outcome is None else self._decide(work.delivery, outcome), seconds)
            for work, outcome in zip(works, outcomes, strict=True)
        ]
        tell_processed([one.work.delivery for one in finished if one.verdict.processed])
        return finished

    def _log_batch(self, deliveries: Sequence[Delivery], error: BaseException) -> None:
        if isinstance(error, Retry | Drop | DeadLetter):
            return
        ids = [delivery.claim.id for delivery in deliveries]
        shown = ", ".join(repr(id) for id in ids[:MOST_SHOWN])
        more = f" and {len(ids) - MOST_SHOWN} more" if len(ids) > MOST_SHOWN else ""
        log.error("queue %s: rows %s%s: the handler failed on their batch", self.queue, shown, more, exc_info=error)

    def _log_failures(self, deliveries: Sequence[Delivery], outcomes: Sequence[Any]) -> None:
        for delivery, outcome in zip(deliveries, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                self._log(delivery, outcome)


def one_per_row(returned: Any, count: int, what: str = "outcome") -> Sequence[Any]:
    """What the handler said of each row; raises where it did not say what becomes of all of them."""
    if returned is None:
        return [None] * count
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes):
        raise ValueError(
            f"the handler returned {describe_value(returned)} for its batch of {count} rows; return None, or a list "
            f"with one {what} per row, and raise an outcome that is meant for all of them"
        )
    if len(returned) != count:
        raise ValueError(
            f"the handler returned {len(returned)} {what}s for its batch of {count} rows; return None, or a list "
            f"with one {what} per row"
        )
    return returned


def released(
    works: Sequence[Work], seconds: float | None = None, stop: BaseException | None = None
) -> Iterable[Finished]:
    """The rows go back; the first of them says why, where a handler asked the process to end."""
    return [Finished(work, RELEASED, seconds, None if number else stop) for number, work in enumerate(works)]
