"""Conditions on moments, in SQL.

Our own text, `YYYY-MM-DD HH:MM:SS.ffffff`, orders as its moments do, and so does SQLite's CURRENT_TIMESTAMP. Others
write `…T…Z`, or with an offset. A `T` sorts after every blank, so text order misplaces today's rows with a `T`, and
tomorrow's where their offset is ahead of UTC. Those two days' `T` rows are ranges of an index of their own, and are
compared by what `strftime` makes of them (to the millisecond). Text that SQLite cannot read keeps its place in text
order, so nothing is hidden for ever. Known limits: with a blank in place of the `T`, an offset ahead of UTC is due that
much late, and a `Z` within the second.
"""

from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import fill
from sqlqueue_sqlite.values import is_a, is_number

# The database's clock. SQLite 3.40 has no unixepoch('now', 'subsec'): it is NULL, and nothing is before NULL.
NOW_TEXT = "strftime('%Y-%m-%d %H:%M:%f', 'now')"
NOW_WHOLE_SECONDS = "CAST(strftime('%s', 'now') AS INTEGER)"
NOW_SECONDS = "((julianday('now') - 2440587.5) * 86400.0)"

# The clock has milliseconds: a delay is rounded to microseconds, as Python's are, and then up, all in whole numbers. As
# a modifier it is text, which would round it by half; a NULL stays one all the way.
MILLISECONDS = "(CAST(round({seconds} * 1000000.0) AS INTEGER) + 999) / 1000"
LATER_TEXT = "strftime('%Y-%m-%d %H:%M:%f', 'now', (({milliseconds}) / 1000.0) || ' seconds')"
LATER_WHOLE_SECONDS = "CAST(strftime('%s', 'now', (({milliseconds} + 999) / 1000.0) || ' seconds') AS INTEGER)"
LATER_SECONDS = "({now} + {seconds})"

# A moment of any spelling in our own, or NULL.
UTC = "strftime('%Y-%m-%d %H:%M:%f', {moment})"

YESTERDAY = "date(substr({now}, 1, 10), '-1 day')"
TODAY = "substr({now}, 1, 10)"
TOMORROW = "date(substr({now}, 1, 10), '+1 day')"

# In text order. Only an offset behind UTC is not over by then, and it is compared exactly.
DUE_IN_TEXT_ORDER = "{moment} <= {now} AND (substr({moment}, -6, 1) <> '-' OR COALESCE({utc}, '') <= {now})"

# The rows of one day that are spelled with a T: 'U' follows it.
DUE_SPELLED_T = "{moment} >= {day} || 'T' AND {moment} < {day} || 'U' AND {utc} <= {now}"

AHEAD_TODAY = "{moment} > {now} AND {moment} < {today} || 'T'"

AHEAD_SPELLED_T = "{moment} >= {day} || 'T' AND {moment} < {day} || 'U' AND {utc} > {now}"

AHEAD_LATER = "{moment} >= {today} || 'U' AND (substr({moment}, 11, 1) <> 'T' OR COALESCE({utc}, {moment}) > {now})"

# Exact, without an index: our own spelling to the microsecond, others through strftime.
ENDED = """
({moment} IS NOT NULL AND CASE
  WHEN substr({moment}, 11, 1) = 'T' OR substr({moment}, -1) = 'Z' OR substr({moment}, -6, 1) IN ('+', '-')
  THEN COALESCE({utc}, {moment}) ELSE {moment} END <= {now})
"""


def now(column: ColumnSpec) -> str:
    """The database's own *now*, as `column` holds moments."""
    if not is_number(column):
        return NOW_TEXT
    return NOW_WHOLE_SECONDS if is_a(column, int) else NOW_SECONDS


def later(column: ColumnSpec, seconds: str) -> str:
    """The database's own *now* and so many seconds, as `column` holds moments."""
    if is_number(column) and not is_a(column, int):
        return fill(LATER_SECONDS, {"now": NOW_SECONDS, "seconds": seconds})
    milliseconds = fill(MILLISECONDS, {"seconds": seconds})
    return fill(LATER_WHOLE_SECONDS if is_number(column) else LATER_TEXT, {"milliseconds": milliseconds})


def earliest(column: ColumnSpec) -> str:
    """A literal before every moment."""
    return "0" if is_number(column) else "''"


def due(moment: str, column: ColumnSpec, now: str) -> tuple[str, ...]:
    """Conditions, each one range of an index, of which every due row meets exactly one."""
    if is_number(column):
        return (fill("{moment} <= {now}", {"moment": moment, "now": now}),)
    parts = _parts(moment, now)
    spelled_t = [fill(DUE_SPELLED_T, {**parts, "day": fill(day, parts)}) for day in (TODAY, TOMORROW)]
    return (fill(DUE_IN_TEXT_ORDER, parts), *spelled_t)


def ahead(moment: str, column: ColumnSpec, now: str) -> tuple[tuple[str, str], ...]:
    """Pairs of value and condition: what is not due yet, each pair one range of an index.

    From tomorrow on the value is the column itself, so that an index gives its minimum; two spellings of a later day
    may then be taken in the wrong order, which the next claim of that day puts right.
    """
    if is_number(column):
        return ((moment, fill("{moment} > {now}", {"moment": moment, "now": now})),)
    parts = _parts(moment, now)
    days = (YESTERDAY, TODAY, TOMORROW)  # that it may be somewhere, by its offset
    spelled_t = [(parts["utc"], fill(AHEAD_SPELLED_T, {**parts, "day": fill(day, parts)})) for day in days]
    return ((moment, fill(AHEAD_TODAY, parts)), *spelled_t, (moment, fill(AHEAD_LATER, parts)))


def ended(moment: str, column: ColumnSpec, now: str) -> str:
    """One exact condition: not NULL and not after `now`."""
    if is_number(column):
        return fill("({moment} IS NOT NULL AND {moment} <= {now})", {"moment": moment, "now": now})
    return fill(ENDED, _parts(moment, now))


def _parts(moment: str, now: str) -> dict[str, str]:
    utc, today = fill(UTC, {"moment": moment}), fill(TODAY, {"now": now})
    return {"moment": moment, "now": now, "utc": utc, "today": today}


# There is no LATERAL: the list is made anew for each level (priority), and has no order. What all of them found is
# sorted: no more than a claim's rows for each priority.
EACH_LEVEL = """
SELECT {id} AS id FROM _levels
CROSS JOIN {table}
WHERE {id} IN (
    {rows}
)
ORDER BY {order}
"""

# A column holds values of any type, and JSON has none for bytes: all are compared as SQL writes them.
ANY_OF = "quote({expression}) IN (SELECT value FROM json_each(:{name}))"

# A column may hold bytes whatever it is declared as, and those need not be text at all.
TEXT_OF = "CASE typeof({expression}) WHEN 'blob' THEN hex({expression}) ELSE CAST({expression} AS text) END"


# A loose index scan, which enters the index anew for each FIFO key or group (a line, in SQL). The first entry of one is
# its head, so each step is one probe, however long it is. There is no LATERAL: the head's id is looked up first, and
# its row then by that.
# From behind `from_line` to the end and, once, on from the start.
WALK_LINES = """
WITH RECURSIVE _lines(line, id, taken, wrapped, found, seen) AS (
    SELECT {from_line}, NULL, FALSE, FALSE, 0, 0
    UNION ALL
    SELECT {line}, {id}, {free}, _lines.wrapped OR _lines.line IS NULL OR {line} <= _lines.line, _lines.found + {free},
           _lines.seen + 1
    FROM _lines
    CROSS JOIN {table} ON {id} = COALESCE(
        (
            SELECT {id} FROM {table}
            WHERE {unfinished}{line} > _lines.line
            ORDER BY {keys}
            LIMIT 1
        ),
        (
            SELECT {id} FROM {table}
            WHERE {unfinished}{line} IS NOT NULL AND NOT _lines.wrapped
            ORDER BY {keys}
            LIMIT 1
        )
    )
    WHERE _lines.found < {limit} AND _lines.seen < {most}
      AND ({from_line} IS NULL OR NOT (_lines.wrapped OR {line} <= _lines.line) OR {line} <= {from_line})
)
{select}
"""

# How far it came; nothing need be kept.
LAST_LINE = """
SELECT NULL AS kept, line AS last_line, seen, found, wrapped FROM _lines
ORDER BY seen DESC
LIMIT 1
"""
