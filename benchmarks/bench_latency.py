"""From another process's insert to the start of the handler, on an idle queue that polls once a minute."""

import subprocess
import sys
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import pytest

from benchmarks.jobs import LIMIT, MESSAGE, queue_on
from benchmarks.report import Report, percentiles
from sqlqueue import Consumer
from tests.support.database import Database

SAMPLES = 300
FIRST = 20  # samples before statements are prepared everywhere

TITLE = "latency: milliseconds from another process's insert to the start of the handler"
HEADING = ("", "writer", "wakes by", "p50", "p95", "p99", "of that, insert and commit p50")

#: How the other process writes; what wakes the consumer then.
WRITERS = {"plain": ("plain INSERT", "trigger"), "enqueue": ("Queue.enqueue", "pg_notify")}


def measure(database: Database, how: str, samples: int) -> list[tuple[float, float]]:
    """For each row the milliseconds to the start of the handler, and to the return of the writer's commit."""
    started: SimpleQueue[tuple[int, int, int]] = SimpleQueue()
    # The table has the trigger unless the writer notifies by itself.
    with queue_on(database, notify=how == "plain"), queue_on(database, notify=True) as queue:

        def handle(message: dict[str, Any]) -> None:
            started.put((message.get("number", -1), message.get("began", 0), time.monotonic_ns()))

        queue.handler(workers=4)(handle)
        with Consumer(queue.broker):
            queue.enqueue(MESSAGE)
            started.get(timeout=LIMIT)
            output = subprocess.run(
                [sys.executable, "-m", "benchmarks.producer", database.url, how, str(samples)],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
                timeout=LIMIT,
            ).stdout
            begun = [started.get(timeout=LIMIT) for _ in range(samples)]
    lines = [line.split() for line in output.splitlines()]
    committed = {int(number): int(moment) for number, moment in lines}
    return [
        ((start - began) / 1e6, (committed[number] - began) / 1e6) for number, began, start in begun if number >= FIRST
    ]


def run(benchmark: Any, database: Database, report: Report, samples: int, how: str) -> None:
    benchmark.group = "latency"
    measured = benchmark.pedantic(measure, args=(database, how, FIRST + samples), rounds=1)
    p50, p95, p99 = percentiles([total for total, _ in measured])
    commit, _, _ = percentiles([commit for _, commit in measured])
    writer, wakes_by = WRITERS[how]
    if database.kind == "sqlite":
        wakes_by = "watcher"
    benchmark.extra_info.update(
        writer=writer, samples=samples, p50_ms=p50, p95_ms=p95, p99_ms=p99, commit_p50_ms=commit
    )
    cells = [f"{value:.2f}" for value in (p50, p95, p99, commit)]
    report.add(TITLE, HEADING, (database.label, writer, wakes_by, *cells))


def test_a_plain_insert_of_another_process_starts_its_handler(
    benchmark: Any, database: Database, report: Report, scaled: Callable[[int], int]
) -> None:
    run(benchmark, database, report, scaled(SAMPLES), "plain")


def test_an_enqueue_of_another_process_starts_its_handler(
    benchmark: Any, database: Database, report: Report, scaled: Callable[[int], int]
) -> None:
    run(benchmark, database, report, scaled(SAMPLES), "enqueue")


@pytest.fixture(autouse=True)
def _from_the_root(pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The producer is a module of this tree."""
    monkeypatch.chdir(pytestconfig.rootpath)
