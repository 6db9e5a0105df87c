"""What an idle consumer costs: statements a second that reach the database, and processor time of this process.

PostgreSQL: every Query and Execute message on the wire, of all connections of the broker, its listener's included.
SQLite: every statement on the pool's one connection, by SQLite's own trace. The watcher's `PRAGMA data_version`, on a
connection of its own, reads no table and is not counted; its cost is in the processor time.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from benchmarks.jobs import Worker, nothing, queue_on
from benchmarks.report import Report
from tests.support.database import Database

TITLE = "an idle consumer: what reaches the database, and processor time of its process"
HEADING = ("", "settings", "seconds", "statements", "statements/s", "processor %")


@attrs.define
class Trace:
    """Counts the statements of one sqlite3 connection."""

    statements: int = 0

    def __call__(self, _: str) -> None:
        self.statements += 1


@contextmanager
def idle(database: Database, settings: dict[str, Any]) -> Iterator[Any]:
    """A consumer that has run dry, and the count of its statements."""
    if database.kind == "sqlite":
        with _worked(database, pool_size=1, **settings) as worker:
            trace = Trace()
            with worker.queue.broker.pool.connection() as connection:
                connection.driver.set_trace_callback(trace)
            yield trace
        return
    from benchmarks.relay import relay

    with relay(database.url) as counted, _worked(attrs.evolve(database, url=counted.url), **settings):
        yield counted


@contextmanager
def _worked(database: Database, **settings: Any) -> Iterator[Worker]:
    with queue_on(database, **settings) as queue:
        queue.handler(workers=16)(nothing)
        worker = Worker(queue)
        worker.start()
        time.sleep(0.5)  # the listener's start, and the claims that follow its wake-up
        try:
            yield worker
        finally:
            worker.stop()


def run(benchmark: Any, database: Database, report: Report, seconds: float, **settings: Any) -> int:
    """Watch an idle consumer; how many statements it sent."""
    benchmark.group = "idle"
    with idle(database, settings) as counted:
        before, processor = counted.statements, time.process_time()
        benchmark.pedantic(time.sleep, args=(seconds,), rounds=1)
        statements = int(counted.statements - before)
        busy = (time.process_time() - processor) / seconds
    shown = ", ".join(f"{name}={value}" for name, value in settings.items())
    benchmark.extra_info.update(settings=shown, statements=statements, processor_share=busy)
    cells = (f"{seconds:g}", statements, f"{statements / seconds:.1f}", f"{busy:.1%}")
    report.add(TITLE, HEADING, (database.label, shown, *cells))
    return statements


@pytest.fixture
def seconds(pytestconfig: pytest.Config) -> float:
    return float(pytestconfig.getoption("idle_seconds"))


def test_an_idle_consumer_that_polls_sends_little(
    benchmark: Any, database: Database, report: Report, seconds: float
) -> None:
    statements = run(benchmark, database, report, seconds, poll_interval=1)
    if database.kind == "sqlite":
        assert statements == 0


def test_an_idle_consumer_that_listens_sends_next_to_nothing(
    benchmark: Any, postgres_database: Database, report: Report, seconds: float
) -> None:
    run(benchmark, postgres_database, report, seconds, poll_interval=60, notify=True)
