"""Where a claim searches for rows: along the claim order, from its start or from a resume point.

Two things want a resume point. Databases that keep deleted rows in their indexes for a while let a claim walk over all
of them: after 60,000 rows a claim of 16 took 4 to 12 ms and 700 buffers, nearly all of them for rows long gone; from
the resume point on 0.1 ms and 22. And where the order is by id alone, rows that are due again at once would be claimed
again and again before the rows behind them.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Any, Protocol

import attrs

from sqlqueue.dialect import Row
from sqlqueue.roles import Role
from sqlqueue.sql import Call, Statement
from sqlqueue.strategies.claim import Claim
from sqlqueue.strategies.due import next_due
from sqlqueue.strategies.order import onward
from sqlqueue.strategies.plan import QueuePlan, Reading, of_any_type

#: Claims that must have come back full, one after the other, before the resume point is used: a backlog.
BACKLOG = 16

#: A claim in so many, and one after so long, begins at the start again: a row that sorts before the resume point,
#: because it came late or came back, waits no longer than that.
SWEEP_CLAIMS = 500
SWEEP_AFTER = timedelta(seconds=1)

#: Claims between two that begin at the start, at least, while rows are put behind that are due again at once: with
#: slow handlers nearly every claim would begin with them otherwise.
BETWEEN_SWEEPS = 4

Position = tuple[Any, ...]


@attrs.define
class ResumePoint:
    """A position (the values of the claim order) where the next claim may begin. Pure: the strategy says what was
    claimed.

    While a backlog lasts, where dead rows make it worth while (`backlog`), that is the first row of the last claim;
    while rows come back that are due at once, the furthest of them.
    """

    backlog: bool = True
    _first: Position | None = None
    _behind: Position | None = None
    _full: int = 0
    _since_sweep: int = 0
    _swept: datetime | None = None

    def position(self, now: datetime) -> Position | None:
        """Where the next claim may begin; None: at the start."""
        if self._swept is None or self._since_sweep >= SWEEP_CLAIMS:
            return None
        fresh = self._swept <= now < self._swept + SWEEP_AFTER
        if not fresh and (self._behind is None or self._since_sweep >= BETWEEN_SWEEPS):
            return None
        if self._behind is not None:
            return self._behind
        return self._first if self.backlog and self._full >= BACKLOG else None

    def put_behind(self, position: Position) -> None:
        """The row at this position will be due again at once: the rows behind it come first."""
        if self._behind is None or of_any_type(position) > of_any_type(self._behind):
            self._behind = position

    def at_end(self) -> None:
        """A claim that began at the resume point came to the end of the queue."""
        self._behind = None

    def claimed(self, first: Position | None, *, full: bool, swept: bool, now: datetime) -> None:
        """A claim took rows from `first` on. `full`: all that it asked for; `swept`: it began at the start."""
        self._first = first
        self._full = self._full + 1 if full else 0
        self._since_sweep = 0 if swept else self._since_sweep + 1
        if swept:
            self._swept = now


#: Makes a strategy's claim: of the statement's name and a SELECT of what it may take, in claim order and locked where
#: the database has row locks, at least `:limit` of them where there are.
Take = Callable[[str, str], Statement]

#: Makes that SELECT, of rows that meet all of these conditions.
Rows = Callable[[Sequence[str]], str]


@attrs.define(eq=False)
class Search:
    """One claim's search for up to `limit` rows.

    `calls`: what is to be run next; the last of them returns rows. `values`: what the strategy's claim binds. `wanted`:
    the rows that are still missing. `position`: where the calls begin, None at the start. `rows`: those found so far.
    """

    values: Mapping[str, Any]
    limit: int
    wanted: int
    calls: Sequence[Call] = ()
    position: Position | None = None
    rows: Sequence[Row] = ()

    def add(self, rows: Sequence[Row], id_at: int) -> None:
        """Rows that were found by further calls; the search's own locks pass none of its rows over."""
        own = {row[id_at] for row in self.rows}
        self.rows = [*self.rows, *(row for row in rows if row[id_at] not in own)]


class Scan(Protocol):
    """Finds the rows of one queue. Safe to use from many threads."""

    @property
    def claim(self) -> Statement:
        """The statement whose order an index should serve."""
        ...

    @property
    def next_due(self) -> Statement:
        """What a queue with nothing to claim waits for, see `due.next_due`."""
        ...

    def statements(self) -> Sequence[Statement]: ...

    def begin(self, values: Mapping[str, Any], limit: int, now: datetime) -> Search:
        """Begin to search for up to `limit` rows; `values` is what the strategy's claim binds."""
        ...

    def further(self, search: Search, results: Sequence[Sequence[Row]]) -> bool:
        """Take in what the search's calls returned; whether it goes on, with other calls."""
        ...

    def found(self, search: Search, now: datetime) -> Sequence[Row]:
        """End a search: note what it found, for the next; its rows in claim order."""
        ...

    def put_behind(self, claim: Claim) -> None:
        """The row will be due again at once: the rows behind it come first."""
        ...


class InOrder:
    """The claim order over the whole queue, with a resume point where walking from the start would cost more.

    `free`: the strategy's conditions, in a claim, for rows that nobody holds; `free_now`: the same in a statement by
    itself. `own_shown`: whether this consumer's rows in flight look free.
    """

    def __init__(
        self,
        plan: QueuePlan,
        reading: Reading,
        *,
        name: str,
        rows: Rows,
        take: Take,
        free: Sequence[str],
        free_now: Sequence[str] | None = None,
        own_shown: bool = False,
    ) -> None:
        spec, dead_rows = plan.sql.spec, plan.sql.dialect.capabilities.dead_rows
        self._reading = reading
        self.claim = take(name, rows(free))
        self._onward: Statement | None = None
        # By key there is no resume point: rows that were passed over before it go first once their key is free.
        if not plan.by_key and not spec.has(Role.PRIORITY) and (dead_rows or not spec.has(Role.RETRY_AFTER)):
            self._onward = take(f"{name}, onward", rows([*free, onward(plan.sql)]))
        self.next_due = next_due(plan.sql, free=free if free_now is None else free_now, own_shown=own_shown)
        self._resume = ResumePoint(backlog=dead_rows)
        self._lock = Lock()

    def statements(self) -> Sequence[Statement]:
        return [*self.claims(), self.next_due]

    def claims(self) -> Sequence[Statement]:
        """The claim from the start and, where there is a resume point, the one that begins there."""
        return [self.claim] if self._onward is None else [self.claim, self._onward]

    def begin(self, values: Mapping[str, Any], limit: int, now: datetime) -> Search:
        bound = {**values, "limit": limit}
        if self._onward is not None:
            with self._lock:  # decided: where this search begins
                position = self._resume.position(now)
            if position is not None:
                bound["from_retry_after"], bound["from_id"] = position
                return Search(values, limit, limit, (Call(self._onward, bound),), position)
        return Search(values, limit, limit, (Call(self.claim, bound),))

    def further(self, search: Search, results: Sequence[Sequence[Row]]) -> bool:
        rows = results[-1]
        search.wanted -= len(rows)
        if search.rows:
            search.add(rows, self._reading.id_at)
        else:
            search.rows = rows
        if search.position is None or not search.wanted:
            return False
        with self._lock:  # decided: the end of the queue; what is left stands before the resume point
            self._resume.at_end()
        search.position = None
        search.calls = (Call(self.claim, {**search.values, "limit": search.wanted}),)
        return True

    def found(self, search: Search, now: datetime) -> Sequence[Row]:
        rows = search.rows
        if len(rows) > 1:
            rows = self._reading.in_order(rows)
        if self._onward is not None:
            id_at, due_at = self._reading.id_at, self._reading.due_at
            first = (None if due_at is None else rows[0][due_at], rows[0][id_at]) if rows else None
            with self._lock:  # decided: where the next search may begin
                self._resume.claimed(first, full=len(rows) >= search.limit, swept=search.position is None, now=now)
        return rows

    def put_behind(self, claim: Claim) -> None:
        with self._lock:  # decided: the rows behind it come first
            self._resume.put_behind((None, claim.id))
