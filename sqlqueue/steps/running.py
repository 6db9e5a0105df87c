"""Run: a claimed row's step is found and run, and what it returns is where the row goes next."""

import logging
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, ClassVar

import attrs

from sqlqueue.clock import later
from sqlqueue.codec import JsonCodec
from sqlqueue.consumer.run_handler import RELEASED, STOPS, Finished, Runner, Work
from sqlqueue.delivery import Delivery
from sqlqueue.dialect import Converter
from sqlqueue.enqueue import encode_payload
from sqlqueue.errors import EncodeError
from sqlqueue.outcome import (
    DeadLetter,
    Drop,
    Move,
    Retry,
    Settlement,
    Verdict,
    decide,
    describe_error,
    describe_value,
    spend,
    spent_at_claim,
)
from sqlqueue.spec import ColumnSpec
from sqlqueue.steps.catalogue import Catalogue, Kind, UnknownStep
from sqlqueue.steps.history import StepRun
from sqlqueue.steps.step import Next, StepContext
from sqlqueue.strategies.steps import LeftAlone

log = logging.getLogger("sqlqueue")

#: Seconds that a task is left alone whose step is not known here: in a rolling deploy others know it.
LEFT_ALONE = 60.0

#: A task's payload is JSON before a codec sees it.
STORED = JsonCodec()


@attrs.define(eq=False, kw_only=True)
class StepRunner(Runner):
    """Runs one queue's steps; safe to call from many threads.

    `payload`: the column that holds steps, `encode` turns its values for the driver. `on_step`: told of each run.
    `id_of`: reads a task's id. `left`: the rows that this process leaves alone, `tell_others` of one that it has let
    go.
    """

    opens: ClassVar[bool] = True

    catalogue: Catalogue
    payload: ColumnSpec
    encode: Converter | None
    on_step: Callable[[StepRun], object] | None
    id_of: Callable[[Delivery], Any]
    left: LeftAlone
    tell_others: Callable[[], object]
    _unknown: set[str] = attrs.field(factory=set, init=False)

    def run(self, work: Work) -> Finished:
        """Find the step, run it, decide; every exception becomes a verdict.

        An id is read where somebody asks for it: that of a UUID from text takes as long as its step's JSON.
        """
        delivery, kind = work.delivery, None
        if self.notices.observers:
            delivery.id = self.id_of(delivery)
        try:
            kind, fields = self.catalogue.decode(self.reader.message(delivery.claim.row))
            step = kind.read(fields)
        except UnknownStep as unknown:
            return self._leave(work, unknown)
        except BaseException as error:  # noqa: BLE001 - a DecodeError, and what a class of the user's raises beside it
            return self._unread(work, kind, error)
        work.rules = kind.rules
        then = self._teller(kind)
        spent = spent_at_claim(kind.rules, delivery.attempt)
        if spent is not None:
            return Finished(work, _not_begun(spent), then=then)
        if kind.step.transactional and not self._opened(delivery):
            return Finished(work, RELEASED)
        self.notices.tell("started", delivery)
        began = perf_counter()
        try:
            outcome = self.call(step, delivery)
        except STOPS as stop:
            return Finished(work, RELEASED, perf_counter() - began, stop, then=then)
        except BaseException as error:  # noqa: BLE001 - whatever a step raises settles its row
            outcome = error
        seconds = perf_counter() - began
        return Finished(work, self._verdict(kind, delivery, outcome), seconds, then=then)

    def _unread(self, work: Work, kind: Kind | None, error: BaseException) -> Finished:
        reason = describe_error(error)
        log.error("queue %s: task %s: %s", self.queue, self.id_of(work.delivery), reason)
        return Finished(work, _not_begun(spend(self.rules, reason)), then=self._teller(kind))

    def _opened(self, delivery: Delivery) -> bool:
        """Whether the delivery's transaction is open; what kept it from that is told by who lends it."""
        try:
            delivery.open()
        except Exception:  # noqa: BLE001 - the database's
            return False
        return True

    def _verdict(self, kind: Kind, delivery: Delivery, outcome: Any) -> Verdict:
        try:
            return self._answered(kind, delivery, outcome)
        except Exception as error:  # noqa: BLE001 - no answer of a step may stop its worker, or leave its row claimed
            self._log_failure(kind, delivery, error)
            return spend(kind.rules, f"what step {kind.name} answered cannot be settled: {describe_error(error)}")

    def _answered(self, kind: Kind, delivery: Delivery, outcome: Any) -> Verdict:
        if isinstance(outcome, Next):
            return self._next(kind, delivery, outcome)
        if not isinstance(outcome, BaseException):
            given = f"step {kind.name} returned {describe_value(outcome)}"
            return spend(kind.rules, f"{given}; return Next.now(…), Next.delay(…) or Next.done()")
        self._log_failure(kind, delivery, outcome)
        return decide(kind.rules, delivery.attempt, outcome, self.now())

    def _next(self, kind: Kind, delivery: Delivery, then: Next) -> Verdict:
        keeps = kind.step.transactional
        if then.ends:
            return Verdict(Settlement(Move.FINISH, keeps=keeps), "acknowledged")
        try:
            stored = encode_payload(self.payload, STORED, self.catalogue.encode(then.step))
        except EncodeError as error:
            self._log_failure(kind, delivery, error)
            return spend(kind.rules, describe_error(error))
        if self.encode is not None:
            stored = self.encode(stored)
        due = None if then.after is None else later(self.now(), then.after)
        return Verdict(Settlement(Move.ADVANCE, due=due, payload=stored, keeps=keeps), "advanced")

    def _leave(self, work: Work, unknown: UnknownStep) -> Finished:
        """Leave the row to those who know its step: it is due for them at once, unless too many are left already."""
        said = str(unknown)
        if said not in self._unknown:
            self._unknown.add(said)
            log.warning("queue %s: %s; such tasks are left to those who know it", self.queue, said)
        now = self.now()
        until = later(now, LEFT_ALONE)
        if self.left.leave(work.delivery.claim.id, now, until):
            return Finished(work, RELEASED, then=self._let_go)
        return Finished(work, Verdict(Settlement(Move.RELEASE, due=until), "released"))

    def _let_go(self, _: Finished) -> None:
        try:
            self.tell_others()
        except Exception:  # they find it at their next look
            log.warning(
                "queue %s: others could not be told of a task that is not known here", self.queue, exc_info=True
            )

    def _log_failure(self, kind: Kind, delivery: Delivery, error: BaseException) -> None:
        if isinstance(error, Retry | Drop | DeadLetter):
            return
        log.error(
            "queue %s: task %s: step %s failed in try %s of %d",
            self.queue,
            self.id_of(delivery),
            kind.name,
            delivery.attempt,
            kind.step.retry_limit + 1,
            exc_info=error,
        )

    def _teller(self, kind: Kind | None) -> Callable[[Finished], None] | None:
        return None if self.on_step is None else partial(self._tell, kind)

    def _tell(self, kind: Kind | None, finished: Finished) -> None:
        assert self.on_step is not None
        delivery, verdict = finished.work.delivery, finished.verdict
        begun = verdict.settlement.begun
        run = StepRun(
            id=self.id_of(delivery),
            task=None if kind is None else kind.task,
            step=None if kind is None else kind.name,
            attempt=(delivery.attempt or 1) - (not begun),
            seconds=finished.seconds,
            outcome=verdict.kind,
            error=verdict.settlement.error or verdict.remark,
        )
        try:
            self.on_step(run)
        except Exception:
            log.exception("queue %s: on_step failed on %r", self.queue, run)


def run_step(kinds: Catalogue, id_of: Callable[[Delivery], Any], step: Any, delivery: Delivery) -> Any:
    """The handler of every queue of tasks, as plugins wrap it."""
    kind = kinds.kind_of(step)
    return step.run(StepContext(kind.task, kind.name, delivery, id_of))


def read_id(decode: Converter | None, delivery: Delivery) -> Any:
    """A task's id; as the driver returned it, where it cannot be read."""
    raw = delivery.claim.id
    try:
        return raw if decode is None else decode(raw)
    except Exception:  # noqa: BLE001 - a decoder may be a plugin's
        return raw


def _not_begun(verdict: Verdict) -> Verdict:
    """The same of a delivery that the claim has counted and that never began."""
    return attrs.evolve(verdict, settlement=attrs.evolve(verdict.settlement, begun=False))
