"""The drain by transactional handlers, each of which writes a row, beside raw loops that do the same writes."""

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from benchmarks.jobs import Job, KeyedJob, LockedJob, Worker, queue_on
from benchmarks.race import MEASURED, ByHand, Jobs, Other, Ours, race
from benchmarks.raw_transactional import EMPTY_NOTES, NOTES, crew
from benchmarks.report import Report
from sqlqueue import Delivery
from tests.support.database import Database

TITLE = "transactional drain, a row written for each: rows a second, medians of interleaved rounds"
HEADING = ("", "held by", "workers", *MEASURED)


@attrs.frozen
class Case:
    """`rows` a round."""

    strategy: str
    declared: type
    workers: int
    rows: int


HELD = [("row lock", LockedJob), ("lease", Job), ("advisory lock", KeyedJob)]
CASES = [
    Case(strategy, declared, workers, rows)
    for strategy, declared in HELD
    for workers, rows in ((1, 400), (4, 800), (16, 1_200))
]


@pytest.fixture
def notes(database: Database) -> Iterator[str]:
    """What a handler says to write its row."""
    database.execute(NOTES)
    database.execute(EMPTY_NOTES)
    yield "INSERT INTO bench_notes VALUES (?)" if database.kind == "sqlite" else "INSERT INTO bench_notes VALUES (%s)"
    database.execute("DROP TABLE bench_notes")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.strategy.replace(' ', '_')}-{case.workers}-workers")
def test_the_transactional_drain_beside_a_raw_loop(
    benchmark: Any, database: Database, report: Report, scaled: Callable[[int], int], notes: str, case: Case
) -> None:
    if case.strategy == "row lock" and database.kind == "sqlite":
        pytest.skip("SQLite has no row locks")
    benchmark.group = f"transactional drain, {database.label}"
    stock = Jobs(database, scaled(case.rows), database.connect())
    with queue_on(database, case.declared, pool_size=case.workers + 1) as queue:

        @queue.handler(workers=case.workers, transactional=True)
        def handle(message: Any, delivery: Delivery) -> None:
            delivery.connection.execute(notes, (delivery.id,))

        others = [Other("the same writes", ByHand(stock, crew(database, case.workers)))]
        with race(stock.rows, Ours(stock, Worker(queue)), others) as raced:
            raced.run(benchmark)
    for cells in raced.cells():
        report.add(TITLE, HEADING, (database.label, case.strategy, case.workers, *cells))
