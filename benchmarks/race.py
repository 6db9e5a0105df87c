"""Ways to drain a table, round by round in turn: never two at once, and each from a full table."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import attrs

from benchmarks.jobs import Worker, empty, fill, fill_lines
from benchmarks.raw import Loop
from benchmarks.report import Rounds
from tests.support.database import Database

ROUNDS = 9

#: The heading of a race's cells.
MEASURED = ("beside", "its rows/s", "sqlqueue", "ratio", "required", "of the best", "its µs/row", "ours µs/row")


class Stock(Protocol):
    """The rows of one round."""

    @property
    def rows(self) -> int: ...

    def empty(self) -> None: ...

    def fill(self) -> None: ...


@attrs.frozen
class Jobs:
    """So many rows in the table of jobs."""

    database: Database
    rows: int
    _filler: Any

    def empty(self) -> None:
        empty(self.database)

    def fill(self) -> None:
        fill(self.database, self._filler, self.rows)


@attrs.frozen
class Lines:
    """So many rows in the table of lines, which come in turns of so many accounts."""

    database: Database
    rows: int
    _accounts: int
    _filler: Any

    def empty(self) -> None:
        empty(self.database, "bench_lines")

    def fill(self) -> None:
        fill_lines(self.database, self._filler, (f"{row % self._accounts}" for row in range(self.rows)))


class Side(Protocol):
    """One way to drain a table; `drain` alone is timed."""

    def set_up(self) -> None:
        """A full table, and nobody at work on it yet."""
        ...

    def drain(self) -> None:
        """All of it, to the last durable settlement."""
        ...

    def rest(self) -> None:
        """Be out of the way of the others."""
        ...

    def close(self) -> None: ...


@attrs.frozen
class ByHand:
    """A raw loop."""

    _stock: Stock
    _loop: Loop

    def set_up(self) -> None:
        self._stock.empty()
        self._stock.fill()

    def drain(self) -> None:
        assert self._loop.drain() == self._stock.rows

    def rest(self) -> None:
        """It does nothing unless a case asks for it."""

    def close(self) -> None:
        self._loop.close()


@attrs.frozen
class Ours:
    """A consumer, idle beside the table while that is filled."""

    _stock: Stock
    _worker: Worker

    def set_up(self) -> None:
        self._stock.empty()
        self._worker.start()
        self._stock.fill()

    def drain(self) -> None:
        queue = self._worker.queue
        queue.broker.wake(queue)
        self._worker.wait(1 + self._stock.rows)

    def rest(self) -> None:
        self._worker.stop()

    def close(self) -> None:
        self._worker.stop()


@attrs.define
class Other:
    """Who ours is compared with. `required`: the least share of its rate."""

    name: str
    side: Side
    required: float | None = None
    rounds: Rounds = attrs.field(factory=Rounds)


@attrs.define
class Race:
    """Ours and the others, a round of each of them before each of ours."""

    rows: int
    ours: Side
    others: Sequence[Other]
    rounds: Rounds = attrs.field(factory=Rounds)

    def run(self, benchmark: Any, rounds: int = ROUNDS) -> None:
        """A round to warm up, and those that count."""
        self._set_up()
        self._drain()
        for timings in (self.rounds, *(other.rounds for other in self.others)):
            timings.forget()
        benchmark.pedantic(self._drain, setup=self._set_up, rounds=rounds)
        benchmark.extra_info.update(self._facts())

    def _set_up(self) -> None:
        self.ours.rest()
        for other in self.others:
            other.side.set_up()
            with timed(other.rounds):
                other.side.drain()
            other.side.rest()
        self.ours.set_up()

    def _drain(self) -> None:
        with timed(self.rounds):
            self.ours.drain()

    def cells(self) -> Iterator[tuple[object, ...]]:
        """The cells under `MEASURED`, a row for each of the others."""
        for other in self.others:
            rates = [f"{rounds.rate(self.rows):,.0f}" for rounds in (other.rounds, self.rounds)]
            required = "" if other.required is None else other.required
            costs = [f"{rounds.microseconds(self.rows):.0f}" for rounds in (other.rounds, self.rounds)]
            ratios = (f"{self.ratio(other):.2f}", required, f"{self.best_ratio(other):.2f}")
            yield (other.name, *rates, *ratios, *costs)

    def short(self) -> list[str]:
        """Of whom ours has fallen short."""
        return [
            f"{self.ratio(other):.2f} of {other.name}, not {other.required}"
            for other in self.others
            if other.required is not None and self.ratio(other) < other.required
        ]

    def ratio(self, other: Other) -> float:
        """Our rate by the other's."""
        return self.rounds.rate(self.rows) / other.rounds.rate(self.rows)

    def best_ratio(self, other: Other) -> float:
        return self.rounds.best(self.rows) / other.rounds.best(self.rows)

    def _facts(self) -> dict[str, Any]:
        return {"rows": self.rows, **self._rates(self.rounds), "beside": [self._beside(other) for other in self.others]}

    def _rates(self, rounds: Rounds) -> dict[str, float]:
        return {
            "rows_per_second": rounds.rate(self.rows),
            "processor_us_per_row": rounds.microseconds(self.rows),
        }

    def _beside(self, other: Other) -> dict[str, Any]:
        ratios = {"ratio": self.ratio(other), "ratio_of_best_rounds": self.best_ratio(other)}
        return {"name": other.name, **self._rates(other.rounds), **ratios, "required": other.required}


@contextmanager
def timed(rounds: Rounds) -> Iterator[None]:
    began, processor = time.perf_counter(), time.process_time()
    yield
    rounds.add(time.perf_counter() - began, time.process_time() - processor)


@contextmanager
def race(rows: int, ours: Side, others: Sequence[Other]) -> Iterator[Race]:
    """The race; its sides are closed afterwards."""
    try:
        yield Race(rows, ours, others)
    finally:
        for side in (ours, *(other.side for other in others)):
            side.close()
