"""A relay's events a second, singly and in batches of 100, beside what one would write by hand.

Every event is claimed, published to a list in memory, and settled durably. With `--publish-to URL`, as often as one
likes, the same goes to real targets, which have nothing beside them: the target's own speed is in it.
"""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from benchmarks.jobs import Job, LockedJob, Worker, queue_on
from benchmarks.race import MEASURED, ByHand, Jobs, Other, Ours, race
from benchmarks.raw_relay import Bus, relay_loop
from benchmarks.report import Report
from sqlqueue import Publisher
from sqlqueue.plugins import publisher_for
from sqlqueue.relay import relay
from tests.support.database import Database

TITLE = "relay: events a second, medians of interleaved rounds; processor time of this process"
HEADING = ("", "strategy", "to", "batch", *MEASURED)

DECLARED = {"lease": Job, "row lock": LockedJob}


@attrs.frozen
class Case:
    """`rows` a round; `batch`: events that are claimed, published and settled at once, None for one by one.
    `required`: the least share of the raw loop's rate."""

    batch: int | None
    rows: int
    required: float | None = None


CASES = pytest.mark.parametrize(
    "case", [Case(None, 500), Case(100, 5_000)], ids=lambda case: f"batches-of-{case.batch or 1}"
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The targets: memory, and those of the option."""
    if "target" in metafunc.fixturenames:
        metafunc.parametrize("target", ["memory", *metafunc.config.getoption("publish_to")])


@CASES
def test_a_relay_by_lease(
    benchmark: Any, database: Database, report: Report, scaled: Callable[[int], int], target: str, case: Case
) -> None:
    drain(benchmark, database, report, "lease", target, attrs.evolve(case, rows=scaled(case.rows)))


@CASES
def test_a_relay_by_row_lock(
    benchmark: Any, postgres_database: Database, report: Report, scaled: Callable[[int], int], target: str, case: Case
) -> None:
    drain(benchmark, postgres_database, report, "row lock", target, attrs.evolve(case, rows=scaled(case.rows)))


def drain(benchmark: Any, database: Database, report: Report, strategy: str, target: str, case: Case) -> None:
    benchmark.group = f"relay to {target.partition('://')[0]}, {database.label}"
    stock = Jobs(database, case.rows, database.connect())
    publisher: Publisher = Bus() if target == "memory" else publisher_for(target)
    with queue_on(database, DECLARED[strategy], pool_size=3) as queue:
        relay(queue, to=publisher, batch=case.batch)
        raw = ByHand(stock, relay_loop(database, Bus(), case.batch or 1))
        with race(stock.rows, Ours(stock, Worker(queue)), [Other("raw loop to memory", raw, case.required)]) as raced:
            raced.run(benchmark)
    publisher.close()
    for cells in raced.cells():
        report.add(TITLE, HEADING, (database.label, strategy, publisher.name, case.batch or 1, *cells))
    assert raced.short() == []
