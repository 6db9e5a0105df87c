"""What a walk along a queue's FIFO lines reads, and what a queue whose lines are all held up waits for."""

from collections.abc import Mapping, Sequence

from sqlqueue.column import Role
from sqlqueue.sql import Statement, fill
from sqlqueue.strategies.ahead import first_of, select_ahead
from sqlqueue.strategies.waiting import claimable
from sqlqueue.words import Words, every

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


def line_parts(words: Words, free: Sequence[str], *, limit: str) -> Mapping[str, str]:
    """The parts of a walk. `free`: the strategy's conditions for rows in nobody's hands."""
    column = words.spec.line
    assert column is not None
    # Whatever stands in a row, the condition is true or false.
    conditions = " AND ".join([*_due(words), *free]) or "TRUE"
    return {
        "table": words.dialect.table(words.spec),
        "id": words.column(Role.ID),
        "line": words.qualified(column),
        "keys": ", ".join(words.line_keys()),
        "unfinished": "".join(f"{condition} AND " for condition in words.unfinished()),
        "free": f"COALESCE({conditions}, FALSE)",
        "from_line": ":from_line",
        "limit": limit,
        "most": str(MOST_SEEN),
    }


def _due(words: Words) -> Sequence[str]:
    return claimable(words)[len(words.unfinished()) :]


def look_ahead_of_lines(words: Words, *, free: Sequence[str], own_shown: bool) -> Statement:
    """As `look_ahead`, of the fronts and of the rows of no line."""
    capabilities = words.dialect.capabilities
    column = words.spec.line
    assert column is not None
    parts = {**line_parts(words, free, limit=ALL), "from_line": "NULL"}
    loose = column.optional
    hidden = _some(parts, "TRUE", words.unfinished(), loose=loose, beyond="0") if capabilities.watches else "TRUE"
    select = select_ahead(
        words,
        due=_first_due(words, parts, loose=loose) if words.spec.has(Role.RETRY_AFTER) else "NULL",
        hidden=hidden,
        passed_over=_some(
            parts, "taken", [*claimable(words), *free], loose=loose, beyond=":held" if own_shown else "0"
        ),
    )
    walk = words.dialect.walk_lines({**parts, "select": select}, "")
    return words.statement("look ahead in lines", "{walk}", width=4, writes=False, walk=walk)


def _first_due(words: Words, parts: Mapping[str, str], *, loose: bool) -> str:
    """When the first of the fronts that are hidden falls due; the rows behind them wait for it."""
    spec = words.spec.role(Role.RETRY_AFTER)
    assert spec is not None
    ahead = words.dialect.ahead(words.moment(Role.RETRY_AFTER), spec, words.now(Role.RETRY_AFTER))
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
