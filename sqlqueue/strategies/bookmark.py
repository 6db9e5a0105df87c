"""Where in the claim order a queue is being worked off, so that a claim begins there instead of at its start.

Two things want that. Databases that keep deleted rows in their indexes for a while let a claim walk over all of
them: after 60,000 rows a claim of 16 took 4 to 12 ms and 700 buffers, nearly all of them for rows long gone; from the
bookmark on 0.1 ms and 22. And where the order is by id alone, rows that are due again at once would be claimed again
and again before the rows behind them. Pure: the strategy says what was claimed.
"""

from datetime import datetime, timedelta
from typing import Any

import attrs

from sqlqueue.strategies.order import of_any_type

#: Claims that must have come back full, one after the other, before the bookmark is used: a backlog.
BACKLOG = 16

#: A claim in so many, and one after so long, begins at the start again: a row that sorts before the bookmark, because
#: it came late or came back, waits no longer than that.
SWEEP_CLAIMS = 500
SWEEP_AFTER = timedelta(seconds=1)


#: Claims between two that begin at the start, at least, while rows are passed over that are due again at once: with
#: slow handlers nearly every claim would begin with them otherwise.
BETWEEN_SWEEPS = 4

Position = tuple[Any, ...]


@attrs.define
class Bookmark:
    """A position (the values of the claim order) where the next claim may begin.

    While a backlog lasts, where dead rows make it worth while (`backlog`), that is the first row of the last claim;
    while rows come back that are due at once, the furthest of them.
    """

    backlog: bool = True
    _first: Position | None = None
    _again: Position | None = None
    _full: int = 0
    _since_sweep: int = 0
    _swept: datetime | None = None

    def position(self, now: datetime) -> Position | None:
        """Where the next claim may begin; None: at the start."""
        if self._must_sweep(now):
            return None
        if self._again is not None:
            return self._again
        return self._first if self.backlog and self._full >= BACKLOG else None

    def _must_sweep(self, now: datetime) -> bool:
        if self._swept is None or self._since_sweep >= SWEEP_CLAIMS:
            return True
        fresh = self._swept <= now < self._swept + SWEEP_AFTER
        return not fresh and (self._again is None or self._since_sweep >= BETWEEN_SWEEPS)

    def again(self, position: Position) -> None:
        """The row at this position will be due again at once: the rows behind it come first."""
        if self._again is None or _key(position) > _key(self._again):
            self._again = position

    def at_end(self) -> None:
        """A claim that began at the bookmark came to the end of the queue."""
        self._again = None

    def claimed(self, first: Position | None, *, full: bool, swept: bool, now: datetime) -> None:
        """A claim took rows from `first` on. `full`: all that it asked for; `swept`: it began at the start."""
        self._first = first
        self._full = self._full + 1 if full else 0
        self._since_sweep = 0 if swept else self._since_sweep + 1
        if swept:
            self._swept = now


def _key(position: Position) -> list[tuple[int, Any]]:
    return [of_any_type(value) for value in position]
