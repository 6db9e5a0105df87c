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
from sqlqueue.steps.catalogue import Catalogue, StepKind, UnknownStep
from sqlqueue.steps.shape import LeftAlone
from sqlqueue.steps.step import Next, StepContext, StepRun

log = logging.getLogger("sqlqueue")

#: Seconds for which this process skips a task whose step is not known here: in a rolling deploy others know it.
SKIP_SECONDS = 60.0

#: A task's payload is JSON before a codec sees it.
STORED = JsonCodec()

#: Of a step that ends its task, by whether it is transactional.
DONE = {keeps: Verdict(Settlement(Move.FINISH, keeps=keeps), "acknowledged") for keeps in (False, True)}


@attrs.define(eq=False, kw_only=True)
class StepRunner(Runner):
    """Runs one queue's steps; safe to call from many threads.

    `payload`: the column that holds steps, `encode` turns its values for the driver. `on_step`: called after each run.
    `id_of`: reads a task's id. `skipped`: the rows that this process skips for a while, `wake_others`: wakes the
    consumers of other programs for them.
    """

    opens: ClassVar[bool] = True

    catalogue: Catalogue
    payload: ColumnSpec
    encode: Converter | None
    on_step: Callable[[StepRun], object] | None
    id_of: Callable[[Delivery], Any]
    skipped: LeftAlone
    wake_others: Callable[[], object]
    _unknown: set[str] = attrs.field(factory=set, init=False)

    def _run_row(self, work: Work) -> Finished:
        """Find the step, run it, decide; every exception becomes a verdict.

        An id is read where somebody asks for it: that of a UUID from text takes as long as its step's JSON.
        """
        delivery, kind, observed = work.delivery, None, self.observers.any
        attempt = delivery.claim.attempt
        if observed:
            delivery.id = self.id_of(delivery)
        try:
            kind, fields = self.catalogue.decode(self.reader.message(delivery.claim.row))
            step = kind.read(fields)
        except UnknownStep as unknown:
            return self._skip(work, unknown)
        except BaseException as error:  # noqa: BLE001 - a DecodeError, and what a class of the user's raises beside it
            reason = describe_error(error)
            log.error("queue %s: task %s: %s", self.queue, self.id_of(delivery), reason)
            return self._not_begun(work, kind, spend(self.rules, reason))
        work.rules = kind.rules
        spent = None if attempt == 1 else spent_at_claim(kind.rules, attempt)  # a first try is never spent
        if spent is not None:
            return self._not_begun(work, kind, spent)
        if kind.step.transactional:
            try:
                delivery.open()
            except Exception:  # noqa: BLE001 - the database's; who lends the connection logs it
                return Finished(work, RELEASED)
        if observed:
            self.observers.tell("started", delivery)
        report = None if self.on_step is None else partial(self._report, kind)
        began = perf_counter()
        try:
            outcome = self.call(step, delivery)
        except STOPS as stop:
            return Finished(work, RELEASED, perf_counter() - began, stop, then=report)
        except BaseException as error:  # noqa: BLE001 - whatever a step raises settles its row
            outcome = error
        seconds = perf_counter() - began
        return Finished(work, self._verdict(kind, delivery, outcome), seconds, then=report)

    def _not_begun(self, work: Work, kind: StepKind | None, verdict: Verdict) -> Finished:
        """Of a delivery that the claim has counted and that never began."""
        verdict = attrs.evolve(verdict, settlement=attrs.evolve(verdict.settlement, begun=False))
        return Finished(work, verdict, then=None if self.on_step is None else partial(self._report, kind))

    def _verdict(self, kind: StepKind, delivery: Delivery, outcome: Any) -> Verdict:
        try:
            if isinstance(outcome, Next):
                return DONE[kind.step.transactional] if outcome.ends else self._advanced(kind, delivery, outcome)
            if not isinstance(outcome, BaseException):
                given = f"step {kind.name} returned {describe_value(outcome)}"
                return spend(kind.rules, f"{given}; return Next.now(…), Next.delay(…) or Next.done()")
            self._log_failure(kind, delivery, outcome)
            return decide(kind.rules, delivery.attempt, outcome, self.now())
        except Exception as error:  # noqa: BLE001 - no answer of a step may stop its worker, or leave its row claimed
            self._log_failure(kind, delivery, error)
            return spend(kind.rules, f"what step {kind.name} answered cannot be settled: {describe_error(error)}")

    def _advanced(self, kind: StepKind, delivery: Delivery, then: Next) -> Verdict:
        try:
            stored = encode_payload(self.payload, STORED, self.catalogue.encode(then.step))
        except EncodeError as error:
            self._log_failure(kind, delivery, error)
            return spend(kind.rules, describe_error(error))
        if self.encode is not None:
            stored = self.encode(stored)
        due = None if then.after is None else later(self.now(), then.after)
        return Verdict(Settlement(Move.ADVANCE, due=due, payload=stored, keeps=kind.step.transactional), "advanced")

    def _skip(self, work: Work, unknown: UnknownStep) -> Finished:
        """Skip the row for a while; it is due at once for those who know its step. Where too many are skipped already,
        nobody claims it for that while."""
        said = str(unknown)
        if said not in self._unknown:
            self._unknown.add(said)
            log.warning("queue %s: %s; such tasks are left to those who know it", self.queue, said)
        now = self.now()
        until = later(now, SKIP_SECONDS)
        if self.skipped.leave(work.delivery.claim.id, now, until):
            return Finished(work, RELEASED, then=self._wake_others)
        return Finished(work, Verdict(Settlement(Move.RELEASE, due=until), "released"))

    def _wake_others(self, _: Finished) -> None:
        try:
            self.wake_others()
        except Exception:  # they find it when they poll
            log.warning(
                "queue %s: other consumers could not be woken for a task that is not known here",
                self.queue,
                exc_info=True,
            )

    def _log_failure(self, kind: StepKind, delivery: Delivery, error: BaseException) -> None:
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

    def _report(self, kind: StepKind | None, finished: Finished) -> None:
        assert self.on_step is not None
        delivery, verdict = finished.work.delivery, finished.verdict
        run = StepRun(
            id=self.id_of(delivery),
            task=None if kind is None else kind.task,
            step=None if kind is None else kind.name,
            attempt=(delivery.attempt or 1) - (not verdict.settlement.begun),
            seconds=finished.seconds,
            outcome=verdict.kind,
            error=verdict.settlement.error or verdict.remark,
        )
        try:
            self.on_step(run)
        except Exception:
            log.exception("queue %s: on_step failed on %r", self.queue, run)


def run_step(catalogue: Catalogue, id_of: Callable[[Delivery], Any], step: Any, delivery: Delivery) -> Any:
    """The handler of every queue of tasks, as plugins wrap it."""
    kind = catalogue.by_class.get(type(step)) or catalogue.kind_of(step)
    return step.run(StepContext(kind.task, kind.name, delivery, id_of))


def read_id(decode: Converter | None, delivery: Delivery) -> Any:
    """A task's id; as the driver returned it, where it cannot be read."""
    raw = delivery.claim.id
    try:
        return raw if decode is None else decode(raw)
    except Exception:  # noqa: BLE001 - a decoder may be a plugin's
        return raw
