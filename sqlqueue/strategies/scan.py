"""Where in the claim order a queue is being worked off, so that a claim begins there instead of at its start.

Two things want that. Databases that keep deleted rows in their indexes for a while let a claim walk over all of
them: after 60,000 rows a claim of 16 took 4 to 12 ms and 700 buffers, nearly all of them for rows long gone; from the
bookmark on 0.1 ms and 22. And where the order is by id alone, rows that are due again at once would be claimed again
and again before the rows behind them. Pure: the strategy says what was claimed.

Where a claim looks for rows: along the claim order, from its start or from a bookmark.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Protocol

import attrs

from sqlqueue.dialect import Row
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.sql import Call, Statement
from sqlqueue.strategies.claim import Claim
from sqlqueue.strategies.due import look_ahead
from sqlqueue.strategies.order import onward
from sqlqueue.strategies.plan import Reading, of_any_type

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
class ResumePoint:
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


#: Makes a strategy's claim: of the statement's name and a SELECT of what it may take, in claim order and locked where
#: the database has row locks, at least `:limit` of them where there are.
Take = Callable[[str, str], Statement]

#: Makes that SELECT, of rows that meet all of these conditions.
Rows = Callable[[Sequence[str]], str]


@attrs.frozen
class Look:
    """One look for `limit` rows, the last of the `asked` ones: the calls that claim, the last of which returns the
    rows.

    `position`: where it began, None at the start.
    """

    calls: Sequence[Call]
    values: Mapping[str, Any]
    limit: int
    asked: int
    position: Any = None


class Scan(Protocol):
    """Finds the rows of one queue. Safe to use from many threads."""

    @property
    def claim(self) -> Statement:
        """The statement whose order an index should serve."""
        ...

    @property
    def ahead(self) -> Statement:
        """What a queue with nothing to claim waits for, see `look_ahead`."""
        ...

    def statements(self) -> Sequence[Statement]: ...

    def look(self, values: Mapping[str, Any], limit: int, now: datetime) -> Look:
        """Begin to look for up to `limit` rows; `values` is what the strategy's claim binds."""
        ...

    def further(self, look: Look, results: Sequence[Sequence[Row]]) -> Look | None:
        """Where to look on, after a look whose calls returned `results`; None where that was all."""
        ...

    def claimed(self, rows: Sequence[Row], last: Look, now: datetime) -> Sequence[Row]:
        """Note what all looks of a claim found; the rows in claim order."""
        ...

    def again(self, claim: Claim) -> None:
        """The row will be due again at once: the rows behind it come first."""
        ...


class InOrder:
    """The claim order over the whole queue, with a bookmark where walking from the start would cost more.

    `free`: the strategy's conditions, in a claim, for rows in nobody's hands; `free_now`: the same in a statement by
    itself. `own_shown`: whether rows in this consumer's hands look free. `by_key`: whether claims pass keys over.
    """

    def __init__(
        self,
        sql: QueueSQL,
        reading: Reading,
        *,
        name: str,
        rows: Rows,
        take: Take,
        free: Sequence[str],
        free_now: Sequence[str] | None = None,
        own_shown: bool = False,
        by_key: bool = False,
    ) -> None:
        spec, dead_rows = sql.spec, sql.dialect.capabilities.dead_rows
        self._reading = reading
        self.claim = take(name, rows(free))
        self._onward: Statement | None = None
        # By key there is no bookmark: rows that were passed over before it go first once their key is free.
        if not by_key and not spec.has(Role.PRIORITY) and (dead_rows or not spec.has(Role.RETRY_AFTER)):
            self._onward = take(f"{name}, onward", rows([*free, onward(sql)]))
        self.ahead = look_ahead(sql, free=free if free_now is None else free_now, own_shown=own_shown)
        self._by_id = not spec.has(Role.RETRY_AFTER)
        self._bookmark = ResumePoint(backlog=dead_rows)
        self._lock = Lock()

    def statements(self) -> Sequence[Statement]:
        return [self.claim, *self.onward, self.ahead]

    @property
    def onward(self) -> Sequence[Statement]:
        """The claim that begins at the bookmark, where there is one."""
        return [self._onward] if self._onward is not None else []

    def look(self, values: Mapping[str, Any], limit: int, now: datetime) -> Look:
        position = None
        if self._onward is not None:
            with self._lock:  # decided: where this look begins
                position = self._bookmark.position(now)
        return self._look(values, limit, limit, position)

    def _look(self, values: Mapping[str, Any], limit: int, asked: int, position: Position | None) -> Look:
        bound = {**values, "limit": limit}
        if position is None or self._onward is None:
            return Look((Call(self.claim, bound),), values, limit, asked)
        bound["from_retry_after"], bound["from_id"] = position
        return Look((Call(self._onward, bound),), values, limit, asked, position)

    def further(self, look: Look, results: Sequence[Sequence[Row]]) -> Look | None:
        left = look.limit - len(results[-1])
        if look.position is None or not left:
            return None
        with self._lock:  # decided: the end of the queue; what is left stands before the bookmark
            self._bookmark.at_end()
        return self._look(look.values, left, look.asked, None)

    def claimed(self, rows: Sequence[Row], last: Look, now: datetime) -> Sequence[Row]:
        rows = self._reading.in_order(rows)
        if self._onward is not None:
            first = self._reading.position(rows[0]) if rows else None
            with self._lock:  # decided: where the next look may begin
                self._bookmark.claimed(first, full=len(rows) >= last.asked, swept=last.position is None, now=now)
        return rows

    def again(self, claim: Claim) -> None:
        if self._by_id:
            with self._lock:  # decided: the rows behind it come first
                self._bookmark.again((None, claim.id))
