"""Keep, pure: when the leases of what is in work must be extended. Instants are seconds of a monotonic clock.

Keep, for seats: the leases of what is in work, extended by a thread of its own while the handlers have theirs.
"""

import logging
from threading import Event, Thread
from time import monotonic

import attrs

from sqlqueue.consumer.budget import Database
from sqlqueue.consumer.in_flight import RowsInWork
from sqlqueue.observers import Observers

log = logging.getLogger("sqlqueue")


@attrs.define
class LeaseTimer:
    """One instant for all leases of a queue: half a lease after the oldest of them was written.

    Leases written meanwhile are extended with the others, a little early: one statement for all of them.
    """

    lease: float
    _next: float | None = None

    def written(self, now: float) -> None:
        """Leases were written, by a claim or an extension."""
        if self._next is None:
            self._next = now + self.lease / 2

    def wait(self, now: float) -> float | None:
        """Seconds until the next extension; None where nothing is held."""
        return None if self._next is None else max(0.0, self._next - now)

    def failed(self, now: float) -> None:
        """An extension failed: the next try comes well before the leases end."""
        self._next = now + self.lease / 8

    def extended(self, now: float, held: bool) -> None:
        """An extension went out at `now`; `held`: whether leases are still held."""
        self._next = now + self.lease / 2 if held else None


#: A look at what is in work every so many parts of a lease, so that an extension that failed has another chance.
PARTS = 4


@attrs.define(eq=False)
class LeaseExtender:
    """Extends leases until it is stopped; a delivery whose lease was lost is told."""

    queue: str
    database: Database
    in_hand: RowsInWork
    notices: Observers
    _over: Event = attrs.field(factory=Event, init=False)
    _thread: Thread | None = attrs.field(default=None, init=False)

    def start(self) -> None:
        self._thread = Thread(target=self._run, name=f"sqlqueue-keeper {self.queue}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Keep nothing any more; returns when an extension under way is over."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        every = wait = self.database.lease / PARTS
        while not self._over.wait(wait):
            began = monotonic()
            try:
                self.extend()
            except Exception:  # the database's trouble, which the seats meet as well
                log.warning("queue %s: its leases could not be extended", self.queue, exc_info=True)
            # One that waits long for the database writes a lease that has begun long ago.
            wait = max(0.0, every - (monotonic() - began))

    def extend(self) -> None:
        """Extend the leases of all that is in work; rows that are being settled meanwhile wait for its end."""
        with self.in_hand.extending() as works:
            if not works:
                return
            by_claim = {id(work.delivery.claim): work for work in works}
            lost = self.database.extend([work.delivery.claim for work in works])
            for claim in lost:
                by_claim[id(claim)].delivery.lose()
        self.notices.tell("extended", detail=len(works) - len(lost))
