"""What became of a queue's rows: counted, logged and told to observers, whoever settles them."""

import logging

import attrs

from sqlqueue.consumer.run_handler import Finished, Work
from sqlqueue.observers import Observers
from sqlqueue.outcome import Move

log = logging.getLogger("sqlqueue")


@attrs.define
class Report:
    """One queue's books. `settled`: rows that were, `released`: rows given back unhandled."""

    queue: str
    notices: Observers
    settled: int = 0
    released: int = 0
    _warned: bool = False

    def settle(self, one: Finished, *, gone: bool) -> None:
        """A row was settled; `gone`: there was none any more."""
        if one.verdict.settlement.move is Move.RELEASE:
            self.released += 1
        else:
            self.settled += 1
        if one.verdict.settlement.move is Move.DEAD_LETTER and not gone:
            self.notices.dead_lettered()
        self._log(one)
        kind = "gone" if gone else one.verdict.kind
        self.notices.tell(kind, one.work.delivery, seconds=one.seconds, detail=one.verdict.problem)
        if one.then is not None:
            one.then(one)

    def _log(self, one: Finished) -> None:
        id, verdict = one.work.delivery.claim.id, one.verdict
        if verdict.problem:
            log.error("queue %s: row %r %s: %s", self.queue, id, verdict.kind, verdict.problem)
        elif verdict.kind == "dropped":
            reason = verdict.remark or "it gave no reason"
            log.info("queue %s: row %r was dropped by its handler: %s", self.queue, id, reason)

    def late(self, work: Work) -> None:
        """What becomes of this row changes nothing, which is told once: when it is found out, or when it is tried."""
        if work.told:
            return
        work.told = True
        log.warning(
            "queue %s: row %r: LeaseLost: it was given back, or its lease or lock ended before its settlement, which "
            "changes nothing; it is delivered again",
            self.queue,
            work.delivery.claim.id,
        )
        self.notices.tell("lease_lost", work.delivery)

    def cannot_hide(self) -> None:
        """A row asked to wait, and the table has no column that could hide it; told once."""
        if self._warned:
            return
        self._warned = True
        log.warning(
            "queue %s: a row asked to wait, and the table has nothing to hide it by: it is due at once, and claims "
            "pause for up to a poll interval instead; add a column (due_at: datetime | None = column.retry_after())",
            self.queue,
        )
