"""Priorities beside rows scheduled ahead: the claim's index is entered anew for each priority (a loose index scan).

In the order of priority, due time and id the rows that one priority has scheduled ahead stand before the due ones of
the next, so a claim that only walked the index would read all of them.
"""

from sqlqueue.column import Role
from sqlqueue.sql import fill
from sqlqueue.words import Words, every

# The priorities there are, smallest first, each found by one step into the index; no more than are asked for. A NULL,
# in a column that was declared to have none, is passed over: it would stand before them all, or behind.
WITH_LEVELS = """
WITH RECURSIVE _levels(priority) AS (
    SELECT * FROM (
        SELECT {rank} FROM {table}
        WHERE {any}
        ORDER BY {rank}
        LIMIT 1
    ) AS _first_level
    UNION ALL
    SELECT (
        SELECT {rank} FROM {table}
        WHERE {further}
        ORDER BY {rank}
        LIMIT 1
    ) FROM _levels
    WHERE _levels.priority IS NOT NULL
)
{select}
"""

# In claim order, which the dialect sees to.
FOUND = """
{each}
LIMIT {most}
"""


def has_levels(words: Words) -> bool:
    """Whether rows have a priority and can be scheduled ahead."""
    return words.spec.has(Role.PRIORITY) and words.spec.has(Role.RETRY_AFTER)


def with_levels(words: Words, select: str) -> str:
    """`select`, which may read `_levels`, a table of the priorities in order and a NULL behind them."""
    rank, unfinished = words.rank(), words.unfinished()
    return fill(
        WITH_LEVELS,
        {
            "table": words.dialect.table(words.spec),
            "rank": rank,
            "any": every([*unfinished, f"{rank} IS NOT NULL"]),
            "further": every([*unfinished, in_levels(words, ">")]),
            "select": select,
        },
    )


def in_levels(words: Words, comparison: str = "=") -> str:
    """The condition that a row's priority is that of the level, or compares otherwise to it."""
    return f"{words.rank()} {comparison} _levels.priority"


def by_level(words: Words, rows: str, most: int) -> str:
    """The first `most` ids that `rows`, a SELECT of ids that names `_levels`, finds for the priorities in turn."""
    found = fill(FOUND, {"each": words.dialect.each_level(words.spec, rows, words.order()), "most": str(most)})
    return with_levels(words, found)
