"""What a walk along a queue's FIFO lines reads, and what a queue whose lines are all held up waits for.

FIFO: over all instances at most one row of a line is in work, its front.

A claim walks the fronts of the lines and takes those that are free: whatever stands behind a front that is in work, or
waits for its retry, waits with it. The next claim begins behind the last line seen, so all lines get their turn.

Where claims run together, a lower id may be committed after a higher one of its line was claimed, and two claimers may
then see different fronts. So the walk takes a guard on each line, a lock until its transaction ends, and a second
statement, which sees all that was committed before the guard was taken, looks up the front again. Under a row lock the
guard is held as long as the row is.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from threading import Lock
from typing import Any

import attrs

from sqlqueue.dialect import Row
from sqlqueue.queue_sql import QueueSQL, every
from sqlqueue.roles import Role
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.strategies.claim import Claim
from sqlqueue.strategies.due import first_of, select_ahead
from sqlqueue.strategies.order import claimable
from sqlqueue.strategies.plan import Reading, of_any_type
from sqlqueue.strategies.scan import Look, Take

#: Lines that one walk sees at most, so that a claim's cost is bounded where all of them are held up.
MOST_SEEN = 1000

#: No limit, for a walk that takes nothing.
ALL = "1000000"

AHEAD_IN_LINES = """
SELECT {value} AS ahead FROM {table}
WHERE {id} IN (SELECT id FROM _lines) AND {condition}
"""

AHEAD_OF_NO_LINE = """
SELECT {value} AS ahead FROM {table}
WHERE {unfinished}{line} IS NULL AND {condition}
"""

IN_LINES = "SELECT id FROM _lines WHERE {condition}"

OF_NO_LINE = """
SELECT {id} AS id FROM {table}
WHERE {condition} AND {line} IS NULL
"""

SOME = """
(
    SELECT count(*) FROM (
        {rows}
        LIMIT {beyond} + 1
    ) AS _found
) > {beyond}
"""


def line_parts(sql: QueueSQL, free: Sequence[str], *, limit: str) -> Mapping[str, str]:
    """The parts of a walk. `free`: the strategy's conditions for rows in nobody's hands."""
    column = sql.spec.line
    assert column is not None
    # Whatever stands in a row, the condition is true or false.
    conditions = " AND ".join([*_due(sql), *free]) or "TRUE"
    return {
        "table": sql.dialect.table(sql.spec),
        "id": sql.column(Role.ID),
        "line": sql.qualified(column),
        "keys": ", ".join(sql.line_keys()),
        "unfinished": "".join(f"{condition} AND " for condition in sql.unfinished()),
        "free": f"COALESCE({conditions}, FALSE)",
        "from_line": ":from_line",
        "limit": limit,
        "most": str(MOST_SEEN),
    }


def _due(sql: QueueSQL) -> Sequence[str]:
    return claimable(sql)[len(sql.unfinished()) :]


def look_ahead_of_lines(sql: QueueSQL, *, free: Sequence[str], own_shown: bool) -> Statement:
    """As `look_ahead`, of the fronts and of the rows of no line."""
    capabilities = sql.dialect.capabilities
    column = sql.spec.line
    assert column is not None
    parts = {**line_parts(sql, free, limit=ALL), "from_line": "NULL"}
    loose = column.optional
    hidden = _some(parts, "TRUE", sql.unfinished(), loose=loose, beyond="0") if capabilities.watches else "TRUE"
    select = select_ahead(
        sql,
        due=_first_due(sql, parts, loose=loose) if sql.spec.has(Role.RETRY_AFTER) else "NULL",
        hidden=hidden,
        passed_over=_some(parts, "taken", [*claimable(sql), *free], loose=loose, beyond=":held" if own_shown else "0"),
    )
    walk = sql.dialect.walk_lines({**parts, "select": select}, "")
    return sql.statement("look ahead in lines", "{walk}", width=4, writes=False, walk=walk)


def _first_due(sql: QueueSQL, parts: Mapping[str, str], *, loose: bool) -> str:
    """When the first of the fronts that are hidden falls due; the rows behind them wait for it."""
    spec = sql.spec.role(Role.RETRY_AFTER)
    assert spec is not None
    ahead = sql.dialect.ahead(sql.moment(Role.RETRY_AFTER), spec, sql.now(Role.RETRY_AFTER))
    ranges = [
        fill(template, {**parts, "value": value, "condition": condition})
        for value, condition in ahead
        for template in (AHEAD_IN_LINES, *([AHEAD_OF_NO_LINE] if loose else []))
    ]
    return first_of(ranges)


def _some(parts: Mapping[str, str], in_lines: str, conditions: Sequence[str], *, loose: bool, beyond: str) -> str:
    """Whether there are more than `beyond` such rows, among the fronts and those of no line."""
    rows = [fill(IN_LINES, {"condition": in_lines})]
    if loose:
        rows.append(fill(OF_NO_LINE, {**parts, "condition": every(conditions or ["TRUE"])}))
    return fill(SOME, {"rows": "\nUNION ALL\n".join(rows), "beyond": beyond})


# Where one claim runs at a time, the walk is the claim's own.
TAKEN = """
SELECT id FROM _lines
WHERE taken
"""

# The front is looked up first and then locked, if it is still free: to pass over a locked one would find the next.
FRONTS = """
SELECT _locked.id AS id FROM {kept}
CROSS JOIN LATERAL (
    SELECT {id} AS id FROM {table}
    WHERE {unfinished}{line} = _kept.line
    ORDER BY {keys}
    LIMIT 1
) AS _front
CROSS JOIN LATERAL (
    SELECT {id} AS id FROM {table}
    WHERE {id} = _front.id AND {claimable}
    {skip_locked}
) AS _locked
"""

# Rows of no line have no order among themselves.
LOOSE = """
SELECT {id} AS id FROM {table}
WHERE {claimable} AND {line} IS NULL
ORDER BY {keys}
LIMIT {most_rows}
{skip_locked}
"""

GUARD_KEY = "CAST(:line_scope AS text) || CAST(_next.line AS text)"
GUARD_KEY_IN_GROUP = "CAST(:line_scope AS text) || CAST(:group AS text) || ':' || CAST(_next.line AS text)"

#: Looks on where a walk saw its most lines and did not come around, or the front of a guarded one was gone.
TRIES = 10


@attrs.frozen
class Stage:
    """How far a claim has come: `number` looks, the last of them at the lines or not (`at_lines`), whether they have
    been at the lines, and at the rows of none."""

    number: int = 1
    at_lines: bool = False
    lines: bool = False
    loose: bool = False


class Fifo:
    """The fronts of one queue's FIFO lines, and its rows of no line."""

    def __init__(
        self, sql: QueueSQL, reading: Reading, take: Take, name: str, *, most: int, free: Sequence[str], own_shown: bool
    ) -> None:
        column = sql.spec.line
        assert column is not None
        self._reading = reading
        self._guarded = sql.dialect.capabilities.concurrent_claims
        parts = line_parts(sql, free, limit=":limit")
        rows = {
            **parts,
            "claimable": every([*claimable(sql), *free]),
            "skip_locked": sql.dialect.skip_locked,
            "most_rows": str(most),
        }
        self._walk = _walk(sql, parts, guarded=self._guarded)
        if self._guarded:
            fronts = fill(FRONTS, {**rows, "kept": sql.dialect.kept_lines(sql.spec, column)})
            self._take = attrs.evolve(take(name, fronts), fresh=True)
        else:
            self._take = take(name, sql.dialect.walk_lines({**parts, "select": TAKEN}, ""))
        self._loose = take(f"{name}, of no line", fill(LOOSE, rows)) if column.optional else None
        self.ahead = look_ahead_of_lines(sql, free=free, own_shown=own_shown)
        self._scope = fill("sqlqueue line:{table}:", {"table": sql.spec.full_name})
        self._lock = Lock()
        self._from: Any = None
        self._turn = 0

    @property
    def claim(self) -> Statement:
        """The walk: one line's front may be found by another order, but not the next line."""
        return self._walk

    def statements(self) -> Sequence[Statement]:
        return [self._walk, self._take, *([self._loose] if self._loose else []), self.ahead]

    def look(self, values: Mapping[str, Any], limit: int, now: datetime) -> Look:
        with self._lock:  # decided: which of the two comes first this time
            self._turn += 1
            loose_first = self._loose is not None and self._turn % 2 == 0
        return (
            self._at_loose(values, limit, limit, Stage())
            if loose_first
            else self._at_lines(values, limit, limit, Stage())
        )

    def _at_lines(
        self, values: Mapping[str, Any], limit: int, asked: int, stage: Stage, *, how_far: bool = False
    ) -> Look:
        bound = {**values, "limit": limit, "from_line": self._from, "line_scope": self._scope}
        statements = (self._walk, self._take) if self._guarded or how_far else (self._take,)
        calls = [Call(statement, bound) for statement in statements]
        return Look(calls, values, limit, asked, attrs.evolve(stage, at_lines=True, lines=True))

    def _at_loose(self, values: Mapping[str, Any], limit: int, asked: int, stage: Stage) -> Look:
        assert self._loose is not None
        calls = [Call(self._loose, {**values, "limit": limit})]
        return Look(calls, values, limit, asked, attrs.evolve(stage, at_lines=False, loose=True))

    def further(self, look: Look, results: Sequence[Sequence[Row]]) -> Look | None:
        stage: Stage = look.position
        left = look.limit - len(results[-1])
        following = attrs.evolve(stage, number=stage.number + 1)
        if stage.at_lines and self._moves_on(look, results) and stage.number < TRIES:
            return self._at_lines(look.values, left, look.asked, following, how_far=True)
        if not left:
            return None
        if self._loose is not None and not stage.loose:
            return self._at_loose(look.values, left, look.asked, following)
        return None if stage.lines else self._at_lines(look.values, left, look.asked, following)

    def _moves_on(self, look: Look, results: Sequence[Sequence[Row]]) -> bool:
        """Note how far a walk came; whether there may be more behind that, or that is to be asked."""
        if len(results) == 1:  # the walk was the claim's own, which tells nothing unless it took a row
            return not results[0]
        ((_, last, seen, taken, from_start),) = results[0]
        with self._lock:  # decided: where the next walk begins
            self._from = last if seen else self._from
        around = from_start and look.calls[0].values["from_line"] is not None
        more = seen >= MOST_SEEN and not around
        return len(results[-1]) < look.limit and (more or taken > len(results[-1]))

    def claimed(self, rows: Sequence[Row], last: Look, now: datetime) -> Sequence[Row]:
        if not self._guarded:
            self._note_last(rows)
        return self._reading.in_order(rows)

    def _note_last(self, rows: Sequence[Row]) -> None:
        """Behind the last of these rows' lines the next walk begins: from where this one began, once around."""
        lines = [line for row in rows if (line := self._reading.line(row)) is not None]
        with self._lock:  # decided: where the next walk begins
            around = [line for line in lines if self._from is not None and of_any_type(line) <= of_any_type(self._from)]
            self._from = max(around or lines, key=of_any_type, default=self._from)

    def again(self, claim: Claim) -> None:
        """A row that comes back is its line's front; the other lines have their turns."""


def _walk(sql: QueueSQL, parts: Mapping[str, str], *, guarded: bool) -> Statement:
    column = sql.spec.line
    assert column is not None
    keep = sql.dialect.keep_lines(column)
    within = sql.grouped and sql.spec.line is not sql.spec.role(Role.GROUP)
    guard = sql.dialect.guard(GUARD_KEY_IN_GROUP if within else GUARD_KEY) if guarded else ""
    walk = sql.dialect.walk_lines({**parts, "select": keep}, guard)
    return attrs.evolve(sql.statement("walk the lines", "{walk}", width=5, walk=walk), fresh=True)
