"""Memory over many rows: a producer thread refills the table in chunks while a consumer works it off.

First the process's resident memory, row by row and undisturbed; then, over fewer rows, what Python's allocator holds
at the end that it did not hold before, both times with nothing in work.
"""

import gc
import threading
import time
import tracemalloc
from pathlib import Path
from statistics import linear_regression
from typing import Any

import attrs
import pytest

from benchmarks.jobs import LIMIT, MESSAGE, Worker, nothing, queue_on
from benchmarks.report import Report
from tests.support.database import Database

CHUNK = 1_000
AHEAD = 5_000  # rows in the table at most
SAMPLES = 100
TRACED = 20_000  # rows, after as many to warm up

#: Bytes that resident memory may grow in the last three quarters, and Python's own between two rests.
GROWTH = 4 * 2**20
TRACED_GROWTH = 128 * 2**10

TITLE = "memory over many rows, 16 workers, prefetch=64"
HEADING = (
    "",
    "rows",
    "resident MiB at 1/4",
    "at the end",
    "slope B/row",
    "Python's growth KiB",
    "rows/s 1st, last 1/4",
)


def resident() -> int:
    """Bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


@attrs.define
class Flow:
    """Rows put into the table and worked off, `AHEAD` at most waiting."""

    worker: Worker
    _put: int = 1  # the row of the start

    def run(self, rows: int) -> list[tuple[int, float, int]]:
        """Work so many rows; on the way rows settled, seconds, and resident bytes."""
        goal = self._put + rows
        producer = threading.Thread(target=self._produce, args=(goal,))
        producer.start()
        samples = []
        for sample in range(1, SAMPLES + 1):
            settled = goal - rows + rows * sample // SAMPLES
            self._wait(settled)
            samples.append((settled, time.monotonic(), resident()))
        producer.join()
        return samples

    def _produce(self, goal: int) -> None:
        while self._put < goal:
            if self._put - self.worker.settled > AHEAD - CHUNK:
                time.sleep(0.002)
                continue
            count = min(CHUNK, goal - self._put)
            self.worker.queue.enqueue_many([MESSAGE] * count)
            self._put += count

    def _wait(self, settled: int) -> None:
        ends = time.monotonic() + LIMIT
        while self.worker.settled < settled and time.monotonic() < ends:
            time.sleep(0.005)
        assert self.worker.settled >= settled


def traced_growth(flow: Flow) -> tuple[int, list[str]]:
    """Bytes that Python holds after `TRACED` rows more than before them, and where the most of them were made."""
    tracemalloc.start()
    try:
        flow.run(TRACED)
        gc.collect()
        before = tracemalloc.take_snapshot()
        flow.run(TRACED)
        gc.collect()
        after = tracemalloc.take_snapshot()
    finally:
        tracemalloc.stop()
    differences = after.filter_traces([tracemalloc.Filter(False, tracemalloc.__file__)]).compare_to(before, "lineno")
    return sum(one.size_diff for one in differences), [str(one) for one in differences[:3]]


def test_memory_stays_flat_over_many_rows(
    benchmark: Any, database: Database, report: Report, pytestconfig: pytest.Config
) -> None:
    benchmark.group = "memory"
    rows = int(pytestconfig.getoption("memory_rows"))
    with queue_on(database) as queue:
        queue.handler(workers=16, prefetch=64)(nothing)
        worker = Worker(queue)
        worker.start()
        try:
            flow = Flow(worker)
            samples = benchmark.pedantic(flow.run, args=(rows,), rounds=1)
            growth, places = traced_growth(flow)
        finally:
            worker.stop()
    quarter = SAMPLES // 4
    warm = samples[quarter - 1 :]
    slope, _ = linear_regression([float(done) for done, _, _ in warm], [float(size) for _, _, size in warm])
    grown = warm[-1][2] - warm[0][2]
    first, last = (rows_a_second(samples[part]) for part in (slice(0, quarter), slice(-quarter, None)))
    benchmark.extra_info.update(rows=rows, bytes_per_row=slope, grown=grown, python_grown=growth, most=places)
    cells = [f"{size / 2**20:.1f}" for _, _, size in (warm[0], warm[-1])]
    rates = f"{first:,.0f}, {last:,.0f}"
    report.add(TITLE, HEADING, (database.label, f"{rows:,}", *cells, f"{slope:.2f}", f"{growth / 2**10:.1f}", rates))
    assert grown < GROWTH
    assert growth < TRACED_GROWTH, places


def rows_a_second(samples: list[tuple[int, float, int]]) -> float:
    """Rows a second between the first and the last sample."""
    (begun, began, _), (ended, end, _) = samples[0], samples[-1]
    return (ended - begun) / (end - began)


@pytest.fixture(autouse=True)
def _can_be_measured() -> None:
    if not Path("/proc/self/statm").exists():
        pytest.fail("resident memory is read from /proc, which this system does not have")
