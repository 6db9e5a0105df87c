"""FIFO: over all instances at most one row of a key is in work, its head.

A claim walks the heads of the keys and takes those that are free: whatever stands behind a head that is in work, or
waits for its retry, waits with it. The next claim begins behind the last key seen, so all keys get their turn. A queue
whose heads are all held up waits for the first of them.

Where claims run side by side, a lower id may be committed after a higher one of its key was claimed, and two claimers
may then see different heads. So the walk takes a guard on each key, a lock until its transaction ends, and a second
statement, which sees all that was committed before the guard was taken, looks up the head again. Under a row lock the
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
from sqlqueue.strategies.due import first_of, select_upcoming
from sqlqueue.strategies.order import claimable
from sqlqueue.strategies.plan import QueuePlan, Reading, of_any_type
from sqlqueue.strategies.scan import Search, Take

#: Keys that one walk sees at most, so that a claim's cost is bounded where all of them are held up.
MOST_SEEN = 1000

#: No limit, for a walk that takes nothing.
ALL = "1000000"

DUE_HEADS = """
SELECT {value} AS ahead FROM {table}
WHERE {id} IN (SELECT id FROM _lines) AND {condition}
"""

DUE_WITHOUT_KEY = """
SELECT {value} AS ahead FROM {table}
WHERE {unfinished}{line} IS NULL AND {condition}
"""

SOME_HEADS = "SELECT id FROM _lines WHERE {condition}"

SOME_WITHOUT_KEY = """
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


def walk_parts(sql: QueueSQL, free: Sequence[str], *, limit: str) -> Mapping[str, str]:
    """The parts of a walk. `free`: the strategy's conditions for rows that nobody holds."""
    column = sql.spec.fifo_column
    assert column is not None
    # Whatever stands in a row, the condition is true or false.
    conditions = " AND ".join([*_due(sql), *free]) or "TRUE"
    return {
        "table": sql.dialect.table(sql.spec),
        "id": sql.column(Role.ID),
        "line": sql.qualified(column),
        "keys": ", ".join(sql.fifo_order()),
        "unfinished": "".join(f"{condition} AND " for condition in sql.unfinished()),
        "free": f"COALESCE({conditions}, FALSE)",
        "from_line": ":from_line",
        "limit": limit,
        "most": str(MOST_SEEN),
    }


def _due(sql: QueueSQL) -> Sequence[str]:
    return claimable(sql)[len(sql.unfinished()) :]


def next_due_of_heads(sql: QueueSQL, *, free: Sequence[str], own_shown: bool) -> Statement:
    """As `due.next_due`, of the heads and of the rows without a key."""
    capabilities = sql.dialect.capabilities
    column = sql.spec.fifo_column
    assert column is not None
    parts = {**walk_parts(sql, free, limit=ALL), "from_line": "NULL"}
    keyless = column.optional
    hidden = _some(parts, "TRUE", sql.unfinished(), keyless=keyless, beyond="0") if capabilities.watches else "TRUE"
    beyond = ":held" if own_shown else "0"
    select = select_upcoming(
        sql,
        due=_first_due(sql, parts, keyless=keyless) if sql.spec.has(Role.RETRY_AFTER) else "NULL",
        hidden=hidden,
        skipped=_some(parts, "taken", [*claimable(sql), *free], keyless=keyless, beyond=beyond),
    )
    walk = sql.dialect.walk_heads({**parts, "select": select}, "")
    return sql.statement("look ahead in lines", "{walk}", width=4, writes=False, walk=walk)


def _first_due(sql: QueueSQL, parts: Mapping[str, str], *, keyless: bool) -> str:
    """When the first of the heads that are hidden falls due; the rows behind them wait for it."""
    spec = sql.spec.role(Role.RETRY_AFTER)
    assert spec is not None
    hidden = sql.dialect.ahead(sql.moment(Role.RETRY_AFTER), spec, sql.now(Role.RETRY_AFTER))
    ranges = [
        fill(template, {**parts, "value": value, "condition": condition})
        for value, condition in hidden
        for template in (DUE_HEADS, *([DUE_WITHOUT_KEY] if keyless else []))
    ]
    return first_of(ranges)


def _some(parts: Mapping[str, str], of_heads: str, conditions: Sequence[str], *, keyless: bool, beyond: str) -> str:
    """Whether there are more than `beyond` such rows, among the heads and those without a key."""
    rows = [fill(SOME_HEADS, {"condition": of_heads})]
    if keyless:
        rows.append(fill(SOME_WITHOUT_KEY, {**parts, "condition": every(conditions or ["TRUE"])}))
    return fill(SOME, {"rows": "\nUNION ALL\n".join(rows), "beyond": beyond})


# Where one claim runs at a time, the walk is the claim's own.
TAKEN = """
SELECT id FROM _lines
WHERE taken
"""

# The head is looked up first and then locked, if it is still free: to pass over a locked one would find the next.
HEADS = """
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

# Rows without a key have no order among themselves.
WITHOUT_KEY = """
SELECT {id} AS id FROM {table}
WHERE {claimable} AND {line} IS NULL
ORDER BY {keys}
LIMIT {most_rows}
{skip_locked}
"""

GUARD_KEY = "CAST(:line_scope AS text) || CAST(_next.line AS text)"
GUARD_KEY_IN_GROUP = "CAST(:line_scope AS text) || CAST(:group AS text) || ':' || CAST(_next.line AS text)"

#: Further walks where one saw its most keys and did not come around, or the head of a guarded one was gone.
TRIES = 10


@attrs.define(eq=False)
class HeadSearch(Search):
    """`number`: how many calls it has made, the last of them for heads or not (`for_heads`). `heads`, `keyless`:
    whether it has been for those."""

    number: int = 1
    for_heads: bool = False
    heads: bool = False
    keyless: bool = False


class Heads:
    """The heads of one queue's FIFO keys, and its rows without a key, as a `Scan`. `own_shown`: whether this consumer's
    rows in flight look free."""

    def __init__(
        self, plan: QueuePlan, reading: Reading, take: Take, name: str, *, free: Sequence[str], own_shown: bool
    ) -> None:
        sql, column = plan.sql, plan.sql.spec.fifo_column
        assert column is not None
        self._reading = reading
        self._guarded = sql.dialect.capabilities.concurrent_claims
        parts = walk_parts(sql, free, limit=":limit")
        rows = {
            **parts,
            "claimable": every([*claimable(sql), *free]),
            "skip_locked": sql.dialect.skip_locked,
            "most_rows": str(plan.most),
        }
        self._walk = _walk(sql, parts, guarded=self._guarded)
        if self._guarded:
            heads = fill(HEADS, {**rows, "kept": sql.dialect.kept_heads(sql.spec, column)})
            self._take = attrs.evolve(take(name, heads), fresh=True)
        else:
            self._take = take(name, sql.dialect.walk_heads({**parts, "select": TAKEN}, ""))
        self._keyless = take(f"{name}, of no line", fill(WITHOUT_KEY, rows)) if column.optional else None
        self.next_due = next_due_of_heads(sql, free=free, own_shown=own_shown)
        self._scope = fill("sqlqueue line:{table}:", {"table": sql.spec.full_name})
        self._lock = Lock()
        self._from: Any = None
        self._number = 0

    @property
    def claim(self) -> Statement:
        """The walk: one key's head may be found by another order, but not the next key."""
        return self._walk

    def statements(self) -> Sequence[Statement]:
        return [self._walk, self._take, *([self._keyless] if self._keyless else []), self.next_due]

    def begin(self, values: Mapping[str, Any], limit: int, now: datetime) -> HeadSearch:
        with self._lock:  # decided: which of the two comes first this time
            self._number += 1
            keyless_first = self._keyless is not None and self._number % 2 == 0
        search = HeadSearch(values, limit, limit)
        if keyless_first:
            self._for_keyless(search)
        else:
            self._for_heads(search)
        return search

    def _for_heads(self, search: HeadSearch, *, how_far: bool = False) -> None:
        """`how_far`: it must show how far the walk came."""
        with self._lock:  # decided: where this walk begins
            from_key = self._from
        bound = {**search.values, "limit": search.wanted, "from_line": from_key, "line_scope": self._scope}
        statements = (self._walk, self._take) if self._guarded or how_far else (self._take,)
        search.calls = [Call(statement, bound) for statement in statements]
        search.for_heads = search.heads = True

    def _for_keyless(self, search: HeadSearch) -> None:
        assert self._keyless is not None
        search.calls = [Call(self._keyless, {**search.values, "limit": search.wanted})]
        search.for_heads, search.keyless = False, True

    def further(self, search: Search, results: Sequence[Sequence[Row]]) -> bool:
        assert isinstance(search, HeadSearch)
        on = search.for_heads and self._moves_on(search, results) and search.number < TRIES
        search.wanted -= len(results[-1])
        search.add(results[-1], self._reading.id_at)
        search.number += 1
        if on:
            self._for_heads(search, how_far=True)
        elif not search.wanted or (search.heads and (search.keyless or self._keyless is None)):
            return False
        elif search.heads:
            self._for_keyless(search)
        else:
            self._for_heads(search)
        return True

    def _moves_on(self, search: Search, results: Sequence[Sequence[Row]]) -> bool:
        """Note how far a walk came; whether there may be more behind that, or that is to be asked."""
        if len(results) == 1:  # the walk was the claim's own, which shows nothing unless it took a row
            return not results[0]
        ((_, last, seen, taken, from_start),) = results[0]
        with self._lock:  # decided: where the next walk begins
            self._from = last if seen else self._from
        around = from_start and search.calls[0].values["from_line"] is not None
        more = seen >= MOST_SEEN and not around
        return len(results[-1]) < search.wanted and (more or taken > len(results[-1]))

    def found(self, search: Search, now: datetime) -> Sequence[Row]:
        if not self._guarded:
            self._note_last(search.rows)
        return self._reading.in_order(search.rows)

    def _note_last(self, rows: Sequence[Row]) -> None:
        """Behind the last of these rows' keys the next walk begins: from where this one began, once around."""
        key_at = self._reading.key_at
        assert key_at is not None
        keys = [row[key_at] for row in rows if row[key_at] is not None]
        with self._lock:  # decided: where the next walk begins
            around = [key for key in keys if self._from is not None and of_any_type(key) <= of_any_type(self._from)]
            self._from = max(around or keys, key=of_any_type, default=self._from)

    def put_behind(self, claim: Claim) -> None:
        """A row that comes back is its key's head; the other keys have their turns."""


def _walk(sql: QueueSQL, parts: Mapping[str, str], *, guarded: bool) -> Statement:
    column = sql.spec.fifo_column
    assert column is not None
    keep = sql.dialect.keep_heads(column)
    within = sql.grouped and sql.spec.fifo_column is not sql.spec.role(Role.GROUP)
    guard = sql.dialect.guard(GUARD_KEY_IN_GROUP if within else GUARD_KEY) if guarded else ""
    walk = sql.dialect.walk_heads({**parts, "select": keep}, guard)
    return attrs.evolve(sql.statement("walk the lines", "{walk}", width=5, walk=walk), fresh=True)
