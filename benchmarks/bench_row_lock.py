"""The drain by row lock beside two raw loops with as many threads and connections as ours has workers.

One is what most would write, the other the best that one could; both decode each row, and settle it durably by itself.
"""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from benchmarks.jobs import LockedJob, Worker, nothing, queue_on
from benchmarks.race import MEASURED, ByHand, Jobs, Other, Ours, race
from benchmarks.report import Report
from tests.support.database import Database

#: The least shares of the raw loops' rates.
OF_NAIVE, OF_FUSED = 1.0, 0.8

TITLE = "row lock drain: rows a second, medians of interleaved rounds; processor time of this process"
HEADING = ("", "workers", *MEASURED)


@attrs.frozen
class Case:
    """`rows` a round."""

    workers: int
    rows: int


CASES = [Case(1, 600), Case(4, 1_200), Case(16, 2_000)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.workers}-workers")
def test_the_row_lock_drain_keeps_up_with_raw_loops(
    benchmark: Any, postgres_database: Database, report: Report, scaled: Callable[[int], int], case: Case
) -> None:
    from benchmarks.raw_row_lock import Fused, Naive, crew

    database, workers = postgres_database, case.workers
    benchmark.group = f"row lock drain, {database.label}"
    stock = Jobs(database, scaled(case.rows), database.connect())
    with queue_on(database, LockedJob, pool_size=workers + 1) as queue:
        queue.handler(workers=workers)(nothing)
        others = [
            Other("4 statements", ByHand(stock, crew(Naive, database.url, workers)), OF_NAIVE),
            Other("pipeline", ByHand(stock, crew(Fused, database.url, workers)), OF_FUSED),
        ]
        with race(stock.rows, Ours(stock, Worker(queue)), others) as raced:
            raced.run(benchmark)
    for cells in raced.cells():
        report.add(TITLE, HEADING, (database.label, workers, *cells))
    assert raced.short() == []
