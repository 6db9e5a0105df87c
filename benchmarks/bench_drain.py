"""The lease drain beside a raw loop that runs the same SQL with the same batch, round by round in turn.

Every row is claimed, decoded, handled by a function that does nothing, and settled durably.
"""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from benchmarks.jobs import Worker, nothing, queue_on
from benchmarks.race import MEASURED, ByHand, Jobs, Other, Ours, race
from benchmarks.raw import Loop, statements
from benchmarks.raw_sqlite import SQLiteLoop
from benchmarks.report import Report
from sqlqueue import Queue
from tests.support.database import Database

TITLE = "lease drain: rows a second, medians of interleaved rounds; processor time of this process"
HEADING = ("", "workers", "prefetch", *MEASURED)


@attrs.frozen
class Case:
    """`rows` a round; `required`: the least share of the raw loop's rate."""

    workers: int
    prefetch: int
    rows: int
    required: float | None = None

    @property
    def batch(self) -> int:
        return self.workers + self.prefetch


CASES = [Case(1, 0, 600), Case(4, 0, 2_000), Case(16, 0, 8_000, required=0.6), Case(16, 64, 20_000, required=0.5)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.workers}-workers-{case.prefetch}-ahead")
def test_the_lease_drain_keeps_up_with_a_raw_loop_of_the_same_sql(
    benchmark: Any, database: Database, report: Report, scaled: Callable[[int], int], case: Case
) -> None:
    benchmark.group = f"lease drain, {database.label}"
    stock = Jobs(database, scaled(case.rows), database.connect())
    with queue_on(database) as queue:
        queue.handler(workers=case.workers, prefetch=case.prefetch)(nothing)
        raw = Other("raw loop", ByHand(stock, loop(database, queue, case.batch)), case.required)
        with race(stock.rows, Ours(stock, Worker(queue)), [raw]) as raced:
            raced.run(benchmark)
    for cells in raced.cells():
        report.add(TITLE, HEADING, (database.label, case.workers, case.prefetch, *cells))
    assert raced.short() == []


def loop(database: Database, queue: Queue, batch: int) -> Loop:
    if database.kind == "sqlite":
        return SQLiteLoop(database.name, statements(queue, batch), batch)
    from benchmarks.raw_postgres import PostgresLoop  # it needs psycopg

    return PostgresLoop(database.url, statements(queue, batch), batch)
