"""What the benchmarks found, as tables at the end of the run."""

from collections.abc import Iterator, Sequence
from statistics import median, quantiles

import attrs
import pytest


@attrs.define
class Report:
    """Tables by title: a heading and rows of cells, in the order in which they came."""

    _tables: dict[str, list[Sequence[str]]] = attrs.field(factory=dict)

    def add(self, title: str, heading: Sequence[str], row: Sequence[object]) -> None:
        self._tables.setdefault(title, [heading]).append([str(cell) for cell in row])

    def tables(self) -> Iterator[tuple[str, list[str]]]:
        """Each table's title and its lines; the first column is left-aligned, the others right-aligned."""
        for title, rows in self._tables.items():
            widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
            yield (
                title,
                [
                    "  ".join(
                        cell.ljust(width) if place == 0 else cell.rjust(width)
                        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
                    )
                    for row in rows
                ],
            )


REPORT = pytest.StashKey[Report]()


@attrs.define
class Rounds:
    """Seconds of the interleaved rounds, and processor seconds of this process (all its threads) in them."""

    seconds: list[float] = attrs.field(factory=list)
    processor: list[float] = attrs.field(factory=list)

    def add(self, seconds: float, processor: float) -> None:
        self.seconds.append(seconds)
        self.processor.append(processor)

    def forget(self) -> None:
        """What came so far was to warm up."""
        self.seconds.clear()
        self.processor.clear()

    def rate(self, rows: int) -> float:
        """Rows a second, by the median round."""
        return rows / median(self.seconds)

    def best(self, rows: int) -> float:
        """Rows a second, by the quickest round: the least disturbed one on a busy machine."""
        return rows / min(self.seconds)

    @property
    def milliseconds(self) -> float:
        """The median round."""
        return median(self.seconds) * 1e3

    def microseconds(self, rows: int) -> float:
        """Processor time a row."""
        return median(self.processor) / rows * 1e6


def percentiles(values: Sequence[float]) -> tuple[float, float, float]:
    """p50, p95 and p99."""
    cuts = quantiles(values, n=100, method="inclusive")
    return cuts[49], cuts[94], cuts[98]
