"""Who settles a row, and what became of a queue's rows: counted, logged and told to observers."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Condition

import attrs

from sqlqueue.consumer.run_handler import Finished, Work
from sqlqueue.dialect import Connection
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
        if work.lost_reported:
            return
        work.lost_reported = True
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


class RowsInWork:
    """The rows whose handlers are at work, each with its connection; how many rows are being settled, and how many
    claims are under way.

    Who takes rows out of work settles them, and says so when that is done. `changed` is the lock over all of it; the
    group decides under it as well.
    """

    def __init__(self) -> None:
        self.changed = Condition()
        self.claiming = self.settling = 0
        self.closed = False
        self._in_work: dict[Work, Connection] = {}
        self._extending: Sequence[Work] = ()
        self._unextended: set[Work] = set()

    @property
    def in_work(self) -> Sequence[Work]:
        with self.changed:  # others come and go meanwhile
            return tuple(self._in_work)

    def __len__(self) -> int:
        with self.changed:  # a row that goes from work to its settlement counts once
            return len(self._in_work) + self.settling

    def begin(self, works: Sequence[Work], connection: Connection) -> None:
        """Rows were claimed. The caller holds the lock."""
        for work in works:
            self._in_work[work] = connection

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
                if work not in self._in_work:
                    return False
            for work in works:
                del self._in_work[work]
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
            self._extending = tuple(work for work in self._in_work if work not in self._unextended)
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
            taken = list(self._in_work.items())
            self._in_work.clear()
            self.settling += len(taken)
            return taken
