"""Run the handler: read claimed rows, call the handler, and decide what becomes of each row.

A row is a batch of one: a runner takes a list of rows and returns what became of each of them.
"""

import inspect
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from time import perf_counter
from typing import Any, ClassVar

import attrs

from sqlqueue.delivery import Delivery, Reader, tell_processed
from sqlqueue.errors import DecodeError, PublishError
from sqlqueue.handler import Handler
from sqlqueue.observers import Observers
from sqlqueue.outcome import (
    ACKNOWLEDGED,
    RELEASE,
    DeadLetter,
    Drop,
    Retry,
    Rules,
    Verdict,
    decide,
    describe_value,
    spent_at_claim,
)
from sqlqueue.publisher import OutgoingMessage

log = logging.getLogger("sqlqueue")

#: Takes a message and its delivery, or a list of each where the handler takes batches.
Call = Callable[[Any, Any], Any]

UNSENT = "the handler returned an outgoing message, and nothing publishes it; register it with handler(reply_to=…)"

#: A handler that raises one of these asks the process to end. It did not fail: its rows go back.
STOPS = (KeyboardInterrupt, SystemExit)

RELEASED = Verdict(RELEASE, "released")

#: Ids of one batch that a line of the log shows.
MOST_SHOWN = 20


def caller(handler: Handler) -> Call:
    """The handler's function as one that always takes the delivery. It raises where the function returned something
    that was only promised, such as a coroutine."""
    function = handler.function
    if handler.stepping is not None:  # the runner of steps reads what a step returns
        return function
    check = check_returned if handler.batch is None else check_batch_returned

    def with_delivery(message: Any, delivery: Any) -> Any:
        returned = function(message, delivery)
        return None if returned is None else check(returned)

    def with_message(message: Any, _: Any) -> Any:
        returned = function(message)
        return None if returned is None else check(returned)

    return with_delivery if handler.takes_delivery else with_message


def check_returned(returned: Any) -> Any:
    """What a handler returned for one row: its outcome, its replies, or something else.

    An exception's class stands for an instance of it, as in `raise`. Raises `TypeError` for what happens only if
    somebody awaits it or reads it, and for an outcome among other things, which nobody would look for there.
    """
    if isinstance(returned, BaseException):
        return returned
    if _is_exception_class(returned):
        return returned()
    for part in flat(returned):
        problem = _problem(part, among=part is not returned)
        if problem:
            raise TypeError(f"the handler returned {describe_value(returned)}, which {problem}")
    return returned


def check_batch_returned(returned: Any) -> Any:
    """What a handler returned for its batch. Where one row's part is wrong, the error stands for that row's outcome."""
    if not isinstance(returned, Sequence) or isinstance(returned, str | bytes):
        return check_returned(returned)
    return [None if one is None else _checked_or_error(one) for one in returned]


def _checked_or_error(returned: Any) -> Any:
    try:
        return check_returned(returned)
    except Exception as error:  # noqa: BLE001 - an exception class of the user may need arguments; other rows go on
        return error


def flat(returned: Any) -> Sequence[Any]:
    """The parts of what a handler returned for one row; a named tuple is one part."""
    if type(returned) not in (list, tuple):
        return () if returned is None else (returned,)
    return [one for part in returned for one in flat(part)]


def _problem(part: Any, *, among: bool) -> str | None:
    """Why a part of what a handler returned cannot count. A coroutine is closed, so that Python does not warn too."""
    if inspect.iscoroutine(part):
        part.close()
    if inspect.isawaitable(part):
        return "nobody awaits: handlers run on threads; give a plain function, such as one that calls asyncio.run"
    if inspect.isgenerator(part) or inspect.isasyncgen(part):
        return "nobody reads, so that it never began: return None, an outcome, or a list"
    if among and (isinstance(part, BaseException) or _is_exception_class(part)):
        return f"has the outcome {part!r} inside: return or raise that by itself"
    return None


def _is_exception_class(returned: Any) -> bool:
    return isinstance(returned, type) and issubclass(returned, BaseException)


def one_per_row(returned: Any, count: int, what: str = "outcome") -> Sequence[Any]:
    """What the handler returned for each row of its batch; raises `ValueError` where it is not one part per row."""
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


@attrs.define(eq=False)
class Work:
    """A claimed row on its way through this consumer.

    `key` is its partition key as the driver returned it; `leads`: whether it is the row of its key that may run;
    `lost_reported`: whether its loss was reported; `rules`: how it settles, where not as all rows of its queue do.
    """

    delivery: Delivery
    key: Any = None
    leads: bool = False
    lost_reported: bool = False
    rules: Rules | None = None


@attrs.frozen
class Finished:
    """What became of a row. `seconds`: how long its handler ran, where it did. `stop` is set where the handler asked
    the process to end, `trouble` where the database kept it from beginning. `then` is called with it once it is
    settled."""

    work: Work
    verdict: Verdict
    seconds: float | None = None
    stop: BaseException | None = None
    trouble: Exception | None = None
    then: "Callable[[Finished], None] | None" = None


@attrs.define(eq=False)
class Runner:
    """Runs one queue's handler; safe to call from many threads.

    `batch`: whether the handler takes its rows as one list; else it takes one row at a time. `opens`: whether the
    runner opens its deliveries' transactions itself, where they need one; else each delivery comes with one.
    """

    opens: ClassVar[bool] = False

    queue: str
    reader: Reader
    rules: Rules
    now: Callable[[], datetime]
    observers: Observers
    call: Call
    batch: bool = False
    _cap: float = attrs.field(init=False)
    _warned: bool = attrs.field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._cap = float("inf") if self.rules.max_attempts is None else self.rules.max_attempts

    def run(self, works: Sequence[Work]) -> list[Finished]:
        """Read the rows, run the handler on those that it may see, decide on each; in no order.

        A handler that takes no batches gets one row at a time. Every exception becomes a verdict.
        """
        if self.batch:
            return self._run_batch(works)
        (work,) = works
        return [self._run_row(work)]

    def _run_row(self, work: Work) -> Finished:
        messages: list[Any] = []
        unfit = self._read(work, messages)
        if unfit is not None:
            return unfit
        delivery = work.delivery
        began = perf_counter()
        try:
            if self.observers.any:
                self.observers.tell("started", delivery)
            outcome = self.call(messages[0], delivery)
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

    def _run_batch(self, works: Sequence[Work]) -> list[Finished]:
        """Settle a row that cannot be read, or that was spent when it was claimed, beside the others. Where no row is
        left the handler is not called."""
        messages: list[Any] = []
        readable: list[Work] = []
        finished: list[Finished] = []
        for work in works:
            unfit = self._read(work, messages)
            if unfit is None:
                readable.append(work)
            else:
                finished.append(unfit)
        if any(one.stop is not None for one in finished):
            return [*finished, *_all_released(readable)]
        return [*finished, *self._handle_batch(readable, messages)] if readable else finished

    def _read(self, work: Work, messages: list[Any]) -> Finished | None:
        """Append the row's message, or return what becomes of a row that its handler must not see.

        A row that was spent when it was claimed is kept unread, so that reading it ends no second worker. Where it
        would be dropped it is read first: a row that cannot be read is never dropped.
        """
        delivery, spent = work.delivery, None
        if (delivery.claim.attempt or 0) > self._cap:
            spent = spent_at_claim(self.rules, delivery.claim.attempt)
            if spent is not None and self.rules.keeps:
                return Finished(work, spent)
        try:
            message = self.reader.read(delivery)
        except STOPS as stop:
            return Finished(work, RELEASED, stop=stop)
        except BaseException as error:  # noqa: BLE001 - a class or a codec of the user may raise anything
            self._log(delivery, error)
            return Finished(work, self._decide(delivery, error))
        if spent is not None:
            return Finished(work, spent)
        messages.append(message)
        return None

    def _handle_batch(self, works: Sequence[Work], messages: list[Any]) -> list[Finished]:
        deliveries = [work.delivery for work in works]
        if self.observers.any:
            for delivery in deliveries:
                self.observers.tell("started", delivery)
        began = perf_counter()
        try:
            outcomes = one_per_row(self.call(messages, list(deliveries)), len(works))
        except STOPS as stop:
            return _all_released(works, perf_counter() - began, stop)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises settles its rows
            outcomes = [error] * len(works)
            self._log_batch(deliveries, error)
        else:
            for delivery, outcome in zip(deliveries, outcomes, strict=True):
                if isinstance(outcome, BaseException):
                    self._log(delivery, outcome)
        seconds = perf_counter() - began
        finished = [
            Finished(work, ACKNOWLEDGED if outcome is None else self._decide(work.delivery, outcome), seconds)
            for work, outcome in zip(works, outcomes, strict=True)
        ]
        tell_processed([one.work.delivery for one in finished if one.verdict.processed])
        return finished

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
        return decide(self.rules, delivery.claim.attempt, outcome, self.now())

    def log_failed(self, delivery: Delivery, error: BaseException) -> None:
        """Log what made a delivery fail outside its handler."""
        log.error("queue %s: row %r: %s", self.queue, delivery.claim.id, error)

    def _log(self, delivery: Delivery, error: BaseException) -> None:
        if isinstance(error, Retry | Drop | DeadLetter):
            return
        if isinstance(error, DecodeError):
            self.log_failed(delivery, error)
        else:
            log.error("queue %s: row %r: the handler failed", self.queue, delivery.claim.id, exc_info=error)

    def _log_batch(self, deliveries: Sequence[Delivery], error: BaseException) -> None:
        if isinstance(error, Retry | Drop | DeadLetter):
            return
        ids = [delivery.claim.id for delivery in deliveries]
        shown = ", ".join(repr(id) for id in ids[:MOST_SHOWN])
        more = f" and {len(ids) - MOST_SHOWN} more" if len(ids) > MOST_SHOWN else ""
        log.error("queue %s: rows %s%s: the handler failed on their batch", self.queue, shown, more, exc_info=error)


def _unsent(outcome: Any) -> bool:
    """Whether a handler that nothing publishes for returned messages."""
    parts = outcome if isinstance(outcome, list | tuple) else (outcome,)
    return any(isinstance(part, OutgoingMessage) for part in parts)


def _tell_processed(finished: Finished) -> None:
    if finished.verdict.processed:  # else its settlement was refused, and it was settled otherwise
        tell_processed([finished.work.delivery])


def _all_released(
    works: Sequence[Work], seconds: float | None = None, stop: BaseException | None = None
) -> list[Finished]:
    """The rows go back; the first of them says why, where a handler asked the process to end."""
    return [Finished(work, RELEASED, seconds, None if number else stop) for number, work in enumerate(works)]
