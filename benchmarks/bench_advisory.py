"""The drain by advisory lock beside a raw loop with as many threads and connections as ours has workers.

The raw loop reads candidates, tries their locks in turn, checks that the row is still there, decodes it, deletes it
durably, and unlocks: a statement for each.
"""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from benchmarks.jobs import KeyedJob, Worker, nothing, queue_on
from benchmarks.race import MEASURED, ByHand, Jobs, Other, Ours, race
from benchmarks.raw import Loop
from benchmarks.report import Report
from tests.support.database import Database

#: The least share of the raw loop's rate.
REQUIRED = 0.8

TITLE = "advisory lock drain: rows a second, medians of interleaved rounds; processor time of this process"
HEADING = ("", "workers", *MEASURED)


@attrs.frozen
class Case:
    """`rows` a round."""

    workers: int
    rows: int


CASES = [Case(1, 500), Case(4, 1_000), Case(16, 1_000)]


def raw(database: Database, workers: int) -> Loop:
    if database.kind == "sqlite":
        from benchmarks.raw_advisory_sqlite import crew

        return crew(database.name, workers)
    from benchmarks.raw_advisory_postgres import crew as crew_of_sessions

    return crew_of_sessions(database.url, workers)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.workers}-workers")
def test_the_advisory_lock_drain_keeps_up_with_a_raw_loop(
    benchmark: Any, database: Database, report: Report, scaled: Callable[[int], int], case: Case
) -> None:
    workers = case.workers
    benchmark.group = f"advisory lock drain, {database.label}"
    stock = Jobs(database, scaled(case.rows), database.connect())
    with queue_on(database, KeyedJob, pool_size=workers + 1) as queue:
        queue.handler(workers=workers)(nothing)
        other = Other("raw loop", ByHand(stock, raw(database, workers)), REQUIRED)
        with race(stock.rows, Ours(stock, Worker(queue)), [other]) as raced:
            raced.run(benchmark)
    for cells in raced.cells():
        report.add(TITLE, HEADING, (database.label, workers, *cells))
    assert raced.short() == []
