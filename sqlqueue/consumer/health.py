"""How a consumer is doing, for people and probes to ask."""

import attrs


@attrs.frozen(kw_only=True)
class QueueHealth:
    """One queue: rows in hand (claimed, not settled), rows settled since the start, and the trouble there is now."""

    name: str
    workers: int
    in_hand: int
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
