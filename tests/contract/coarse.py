"""What must hold of a lease whose column keeps less than microseconds."""

from datetime import timedelta
from typing import Any

import attrs

from sqlqueue import Broker, Retry, TableSpec
from sqlqueue.testing import ManualClock, Recorder, drain
from sqlqueue.testing.clock import START
from sqlqueue.testing.contract.harness import shown
from tests.support.database import Database

#: An odd moment: every digit of its second counts.
NOW = START + timedelta(microseconds=123_456)


def tokens_survive(database: Database, broker: Broker, spec: TableSpec, step: timedelta) -> None:
    """The token read back is the one written, rounded up to `step`; an extension and the ack find their row."""
    clock, recorder = ManualClock(NOW), Recorder()
    queue = broker.queue(clocked(spec, clock))
    seen: list[Any] = []

    @queue.handler(lease=0.1)
    def work(message: Any) -> None:
        seen.extend(shown(database, queue, "locked_until"))
        clock.advance(0.05)
        recorder.wait_for("extended", count=2)  # the first may have read the clock before it moved
        seen.extend(shown(database, queue, "locked_until"))

    queue.enqueue("x")
    drain(broker, recorder)
    assert seen == [(up(NOW + timedelta(seconds=seconds), step),) for seconds in (0.1, 0.15)]
    assert shown(database, queue, "id") == []
    assert recorder.of("lease_lost", "trouble") == []


def delays_keep_their_own_precision(database: Database, broker: Broker, spec: TableSpec) -> None:
    """What a retried row waits is written as finely as its own column keeps it."""
    clock = ManualClock(NOW)
    queue = broker.queue(clocked(spec, clock))
    queue.handler(lambda message: Retry(0.3))
    queue.enqueue("x")
    drain(broker)
    assert shown(database, queue, "due_at", "locked_until") == [(NOW + timedelta(seconds=0.3), None)]


def clocked(spec: TableSpec, clock: ManualClock) -> TableSpec:
    return attrs.evolve(spec, clock=clock)


def up(moment: Any, step: timedelta) -> Any:
    return moment + (START - moment) % step
