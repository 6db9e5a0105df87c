"""The lease drain beside a raw loop that runs the same SQL with the same batch, round by round in turn.

Every row is claimed, decoded, handled by a function that does nothing, and settled durably.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from benchmarks.jobs import Worker, empty, fill, nothing, queue_on
from benchmarks.raw import Loop, loop
from benchmarks.report import Report, Rounds
from tests.support.database import Database

ROUNDS = 5

TITLE = "lease drain: rows a second, medians of interleaved rounds; processor time of this process"
HEADING = (
    "",
    "workers",
    "prefetch",
    "raw loop",
    "sqlqueue",
    "ratio",
    "required",
    "of the best",
    "raw µs/row",
    "ours µs/row",
)


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


@attrs.define
class Race:
    """The raw loop and the consumer on one table, never at once."""

    database: Database
    rows: int
    worker: Worker
    _raw: Loop
    _filler: Any
    raw_rounds: Rounds = attrs.field(factory=Rounds)
    rounds: Rounds = attrs.field(factory=Rounds)

    def set_up(self) -> None:
        """A raw round, then a full table with our consumer idle beside it."""
        self.worker.stop()
        empty(self.database)
        fill(self.database, self._filler, self.rows)
        with timed(self.raw_rounds):
            assert self._raw.drain() == self.rows
        empty(self.database)
        self.worker.start()
        fill(self.database, self._filler, self.rows)

    def drain(self) -> None:
        with timed(self.rounds):
            self.worker.queue.broker.wake(self.worker.queue)
            self.worker.wait(1 + self.rows)

    def forget(self) -> None:
        self.raw_rounds.forget()
        self.rounds.forget()

    @property
    def ratio(self) -> float:
        """Our rate by the raw loop's."""
        return self.rounds.rate(self.rows) / self.raw_rounds.rate(self.rows)

    @property
    def best_ratio(self) -> float:
        return self.rounds.best(self.rows) / self.raw_rounds.best(self.rows)

    def facts(self) -> dict[str, float]:
        return {
            "rows": self.rows,
            "raw_rows_per_second": self.raw_rounds.rate(self.rows),
            "rows_per_second": self.rounds.rate(self.rows),
            "ratio": self.ratio,
            "ratio_of_best_rounds": self.best_ratio,
            "raw_processor_us_per_row": self.raw_rounds.microseconds(self.rows),
            "processor_us_per_row": self.rounds.microseconds(self.rows),
        }

    def close(self) -> None:
        self.worker.stop()
        self._raw.close()


@contextmanager
def timed(rounds: Rounds) -> Iterator[None]:
    began, processor = time.perf_counter(), time.process_time()
    yield
    rounds.add(time.perf_counter() - began, time.process_time() - processor)


@contextmanager
def race(database: Database, case: Case, rows: int) -> Iterator[Race]:
    with queue_on(database) as queue:
        queue.handler(workers=case.workers, prefetch=case.prefetch)(nothing)
        made = Race(database, rows, Worker(queue), loop(database, queue, case.batch), database.connect())
        try:
            yield made
        finally:
            made.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.workers}-workers-{case.prefetch}-ahead")
def test_the_lease_drain_keeps_up_with_a_raw_loop_of_the_same_sql(
    benchmark: Any, database: Database, report: Report, scaled: Callable[[int], int], case: Case
) -> None:
    benchmark.group = f"lease drain, {database.label}"
    rows = scaled(case.rows)
    with race(database, case, rows) as raced:
        raced.set_up()
        raced.drain()
        raced.forget()
        benchmark.pedantic(raced.drain, setup=raced.set_up, rounds=ROUNDS)
    ratio = raced.ratio
    benchmark.extra_info.update(raced.facts(), required=case.required)
    cells = (f"{raced.raw_rounds.rate(rows):,.0f}", f"{raced.rounds.rate(rows):,.0f}", f"{ratio:.2f}")
    costs = (f"{each.microseconds(rows):.0f}" for each in (raced.raw_rounds, raced.rounds))
    required = "" if case.required is None else case.required
    told = (database.label, case.workers, case.prefetch, *cells, required, f"{raced.best_ratio:.2f}", *costs)
    report.add(TITLE, HEADING, told)
    assert case.required is None or ratio >= case.required
