"""How a consumer is doing, for people and probes to ask; and trouble with the database, which is logged twice: when it
begins and when it is over.
"""

import logging
from time import monotonic

import attrs

from sqlqueue.dialect import Trouble

log = logging.getLogger("sqlqueue")


@attrs.frozen(kw_only=True)
class QueueHealth:
    """One queue: rows in flight (claimed, not settled), rows settled since the start, and the trouble there is now."""

    name: str
    workers: int
    in_flight: int
    settled: int
    trouble: str | None = None

    @property
    def ok(self) -> bool:
        return self.trouble is None


@attrs.frozen(kw_only=True)
class Health:
    """A consumer: its state (`new`, `starting`, `running`, `stopping`, `stopped`), its database and its queues."""

    state: str
    source: str
    queues: tuple[QueueHealth, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it runs and no queue has trouble."""
        return self.state == "running" and all(queue.ok for queue in self.queues)


@attrs.define
class Outage:
    """Whether one queue's statements fail at present. `error`: why, None where they do not; `failures`: how many failed
    since the outage began."""

    queue: str
    error: str | None = None
    since: float = 0.0
    failures: int = 0

    @property
    def lasts(self) -> bool:
        return self.error is not None

    def begin(self, trouble: Trouble, error: BaseException, pause: float) -> None:
        """A statement failed; the next try is in `pause` seconds, unless the trouble ends the run."""
        first = self.error is None
        self.error = f"{trouble.name.lower()}: {type(error).__name__}: {error}".strip()
        self.failures += 1
        if trouble is Trouble.CLOSED:
            log.error("queue %s: %s (%s); the run ends", self.queue, trouble.value, self.error)
        elif first:
            self.since = monotonic()
            log.warning(
                "queue %s: %s (%s); trying again in %.1f s, then less often",
                self.queue,
                trouble.value,
                self.error,
                pause,
            )

    def end(self) -> bool:
        """The database did what it was asked; returns whether that ends an outage."""
        if self.error is None:
            return False
        log.warning(
            "queue %s: works again after %.1f s and %d failures", self.queue, monotonic() - self.since, self.failures
        )
        self.error, self.failures = None, 0
        return True
