"""The drain in batches beside the drain of one row at a time, by each strategy, with one worker.

Every row is claimed, decoded, handled by a function that does nothing, and settled durably; nothing is claimed ahead.
"""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from benchmarks.jobs import Job, KeyedJob, LockedJob, Worker, nothing, queue_on
from benchmarks.race import MEASURED, Jobs, Other, Ours, race
from benchmarks.report import Report
from tests.support.database import Database

TITLE = "drain in batches: rows a second, medians of interleaved rounds; processor time of this process"
HEADING = ("", "strategy", "batch", *MEASURED)

DECLARED = {"lease": Job, "row lock": LockedJob, "advisory": KeyedJob}


@attrs.frozen
class Case:
    """`rows` a round; `required`: the least share of the rate of one row at a time."""

    batch: int
    rows: int
    required: float | None = None


CASES = pytest.mark.parametrize(
    "case", [Case(1, 500), Case(10, 1_000, 2.0), Case(100, 2_000, 4.0)], ids=lambda case: f"batches-of-{case.batch}"
)


@CASES
@pytest.mark.parametrize("strategy", ["lease", "advisory"])
def test_a_drain_in_batches_saves_most_of_the_turns(
    benchmark: Any, database: Database, report: Report, scaled: Callable[[int], int], strategy: str, case: Case
) -> None:
    drain(benchmark, database, report, strategy, attrs.evolve(case, rows=scaled(case.rows)))


@CASES
def test_a_drain_in_batches_by_row_lock_saves_most_of_the_turns(
    benchmark: Any, postgres_database: Database, report: Report, scaled: Callable[[int], int], case: Case
) -> None:
    drain(benchmark, postgres_database, report, "row lock", attrs.evolve(case, rows=scaled(case.rows)))


def drain(benchmark: Any, database: Database, report: Report, strategy: str, case: Case) -> None:
    declared = DECLARED[strategy]
    benchmark.group = f"drain in batches, {database.label}"
    stock = Jobs(database, case.rows, database.connect())
    with queue_on(database, declared, pool_size=2) as single, queue_on(database, declared, pool_size=2) as queue:
        single.handler(nothing)
        queue.handler(batch=case.batch)(nothing)
        other = Other("one at a time", Ours(stock, Worker(single)), case.required)
        with race(stock.rows, Ours(stock, Worker(queue)), [other]) as raced:
            raced.run(benchmark)
    for cells in raced.cells():
        report.add(TITLE, HEADING, (database.label, strategy, case.batch, *cells))
    assert raced.short() == []
