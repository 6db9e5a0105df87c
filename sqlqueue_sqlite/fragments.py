"""Conditions on moments, in SQL.

Our own text, `YYYY-MM-DD HH:MM:SS.ffffff`, orders as its moments do, and so does SQLite's CURRENT_TIMESTAMP. Others
write `…T…Z`, or with an offset. A `T` sorts after every blank, so text order misplaces today's rows with a `T`, and
tomorrow's where their offset is ahead of UTC. Those two days' `T` rows are ranges of an index of their own, and are
compared by what `strftime` makes of them (to the millisecond). Text that SQLite cannot read keeps its place in text
order, so nothing is hidden for ever. Known limits: with a blank in place of the `T`, an offset ahead of UTC is due that
much late, and a `Z` within the second.
"""

from collections.abc import Sequence

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

# The rows of one day that are spelled with a T: 'U' follows it.
SPELLED_T = "{moment} >= {day} || 'T' AND {moment} < {day} || 'U'"

# In text order. Only an offset behind UTC is not over by then, and it is looked at exactly.
DUE_IN_TEXT_ORDER = "{moment} <= {now} AND (substr({moment}, -6, 1) <> '-' OR COALESCE({utc}, '') <= {now})"

DUE_SPELLED_T = "{range} AND {utc} <= {now}"

AHEAD_TODAY = "{moment} > {now} AND {moment} < {today} || 'T'"

AHEAD_SPELLED_T = "{range} AND {utc} > {now}"

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
    words = _words(moment, now)
    return (
        fill(DUE_IN_TEXT_ORDER, words),
        fill(DUE_SPELLED_T, {**words, "range": _spelled_t(words, "today")}),
        fill(DUE_SPELLED_T, {**words, "range": _spelled_t(words, "tomorrow")}),
    )


def ahead(moment: str, column: ColumnSpec, now: str) -> tuple[tuple[str, str], ...]:
    """Pairs of value and condition: what is not due yet, each pair one range of an index.

    From tomorrow on the value is the column itself, so that an index gives its minimum; two spellings of a later day
    may then be taken in the wrong order, which a look on that day puts right.
    """
    if is_number(column):
        return ((moment, fill("{moment} > {now}", {"moment": moment, "now": now})),)
    words = _words(moment, now)
    return (
        (moment, fill(AHEAD_TODAY, words)),
        *[
            (words["utc"], fill(AHEAD_SPELLED_T, {**words, "range": _spelled_t(words, day)}))
            for day in ("yesterday", "today", "tomorrow")  # the days that it may be somewhere, by its offset
        ],
        (moment, fill(AHEAD_LATER, words)),
    )


def ended(moment: str, column: ColumnSpec, now: str) -> str:
    """One exact condition: not NULL and not after `now`."""
    if is_number(column):
        return fill("({moment} IS NOT NULL AND {moment} <= {now})", {"moment": moment, "now": now})
    return fill(ENDED, _words(moment, now))


def _words(moment: str, now: str) -> dict[str, str]:
    return {
        "moment": moment,
        "now": now,
        "utc": fill(UTC, {"moment": moment}),
        "yesterday": fill(YESTERDAY, {"now": now}),
        "today": fill(TODAY, {"now": now}),
        "tomorrow": fill(TOMORROW, {"now": now}),
    }


def _spelled_t(words: dict[str, str], day: str) -> str:
    return fill(SPELLED_T, {"moment": words["moment"], "day": words[day]})


# There is no LATERAL: the list is made anew for each level, and has no order. What all levels found is sorted: no more
# than a claim's rows for each priority.
EACH_LEVEL = """
SELECT {id} AS id FROM _levels
CROSS JOIN {table}
WHERE {id} IN (
    {rows}
)
ORDER BY {order}
"""


def each_level(table: str, id: str, rows: str, order: Sequence[str]) -> str:
    """The ids that `rows` finds for each level, in order."""
    return fill(EACH_LEVEL, {"table": table, "id": id, "rows": rows, "order": ", ".join(order)})


# A column holds values of any type, and JSON has none for bytes: all are compared as SQL writes them.
ANY_OF = "quote({expression}) IN (SELECT value FROM json_each(:{name}))"


def any_of(expression: str, name: str) -> str:
    return fill(ANY_OF, {"expression": expression, "name": name})


# A column may hold bytes whatever it is declared as, and those need not be text at all.
TEXT_OF = "CASE typeof({expression}) WHEN 'blob' THEN hex({expression}) ELSE CAST({expression} AS text) END"


def text_of(expression: str) -> str:
    return fill(TEXT_OF, {"expression": expression})
