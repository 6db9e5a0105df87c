"""Where in the claim order a backlog is being worked off, so that a claim begins there instead of at its start.

Databases that keep deleted rows in their indexes for a while let a claim walk over all of them: after 60,000 rows a
claim of 16 took 4 to 12 ms and 700 buffers, nearly all of them for rows long gone; from the bookmark on 0.1 ms and 22.
Pure: the strategy says what was claimed.
"""

from datetime import datetime, timedelta
from typing import Any

import attrs

#: Claims that must have come back full, one after the other, before the bookmark is used: a backlog.
BACKLOG = 16

#: A claim in so many, and one after so long, begins at the start again: a row that sorts before the bookmark, because
#: it came late or came back, waits no longer than that.
SWEEP_CLAIMS = 500
SWEEP_AFTER = timedelta(seconds=1)


@attrs.define
class Bookmark:
    """The position (the values of the claim order) of the first row of the last claim, while a backlog lasts."""

    _position: tuple[Any, ...] | None = None
    _full: int = 0
    _since_sweep: int = 0
    _swept: datetime | None = None

    def position(self, now: datetime) -> tuple[Any, ...] | None:
        """Where the next claim may begin; None: at the start."""
        if self._full < BACKLOG or self._swept is None or self._since_sweep >= SWEEP_CLAIMS:
            return None
        return self._position if self._swept <= now < self._swept + SWEEP_AFTER else None

    def claimed(self, first: tuple[Any, ...] | None, *, full: bool, swept: bool, now: datetime) -> None:
        """A claim took rows from `first` on. `full`: all that it asked for; `swept`: it began at the start."""
        self._position = first
        self._full = self._full + 1 if full else 0
        self._since_sweep = 0 if swept else self._since_sweep + 1
        if swept:
            self._swept = now
