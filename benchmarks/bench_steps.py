"""Tasks of three steps beside a raw loop that runs the same SQL with the same batch, and beside 100,000 parked ones."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from benchmarks.race import MEASURED, ROUNDS, ByHand, Other, race
from benchmarks.raw_steps import loop
from benchmarks.report import Report
from benchmarks.steps import BENCH, Runs, Tasks
from sqlqueue import Broker
from sqlqueue.steps import TaskQueue
from tests.support.database import Database

TITLE = "tasks of three steps: steps a second, medians of interleaved rounds; processor time of this process"
HEADING = ("", "workers", "tasks", "parked", *MEASURED)

PARKED = 100_000


@attrs.frozen
class Case:
    """`tasks` a round; `required`: the least share of the raw loop's rate."""

    workers: int
    tasks: int
    required: float | None = None
    rounds: int = ROUNDS


CASES = [Case(1, 200), Case(4, 800), Case(16, 3_000, required=0.6), Case(16, 100_000, required=0.6, rounds=1)]


@contextmanager
def tasks_on(database: Database, workers: int, table: str = "pg_task") -> Iterator[TaskQueue]:
    with Broker(database.url, poll_interval=60) as broker:
        tasks = TaskQueue(broker, [BENCH], table=table, workers=workers, notify=False)
        broker.create_tables()
        yield tasks


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.workers}-workers-{case.tasks}-tasks")
def test_tasks_keep_up_with_a_raw_loop_of_the_same_sql(
    benchmark: Any, database: Database, report: Report, scaled: Callable[[int], int], case: Case
) -> None:
    benchmark.group = f"tasks, {database.label}"
    stock = Tasks(database, "pg_task", scaled(case.tasks), database.connect())
    with tasks_on(database, case.workers) as tasks:
        raw = Other("raw loop", ByHand(stock, loop(database, tasks, case.workers)), case.required)
        with race(stock.rows, Runs(stock, tasks), [raw]) as raced:
            raced.run(benchmark, case.rounds)
    for cells in raced.cells():
        report.add(TITLE, HEADING, (database.label, case.workers, stock.tasks, 0, *cells))
    assert raced.short() == []


def test_parked_tasks_do_not_slow_the_others(
    benchmark: Any, database: Database, report: Report, scaled: Callable[[int], int]
) -> None:
    benchmark.group = f"tasks beside parked ones, {database.label}"
    alone = Tasks(database, "pg_task", scaled(3_000), database.connect())
    beside = Tasks(database, "crowded_tasks", scaled(3_000), database.connect(), parked=scaled(PARKED))
    with tasks_on(database, 16) as tasks, tasks_on(database, 16, beside.table) as crowded:
        beside.park()
        other = Other("none parked", Runs(alone, tasks), 0.8)
        with race(beside.rows, Runs(beside, crowded), [other]) as raced:
            raced.run(benchmark)
    for cells in raced.cells():
        report.add(TITLE, HEADING, (database.label, 16, beside.tasks, beside.parked, *cells))
    assert raced.short() == []
