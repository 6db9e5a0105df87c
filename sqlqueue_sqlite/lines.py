"""A walk along the fronts of FIFO lines: a loose index scan, which enters the index anew for each line.

The first entry of a line in its index is its front, so each step is one probe, however long the line is. There is no
LATERAL: the front's id is looked up first, and its row then by that.
"""

from collections.abc import Mapping

from sqlqueue.sql import fill

# From behind `from_line` to the end and, once, on from the start.
WALK = """
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
LAST = """
SELECT NULL AS kept, line AS last_line, seen, found, wrapped FROM _lines
ORDER BY seen DESC
LIMIT 1
"""


def walk(parts: Mapping[str, str]) -> str:
    return fill(WALK, parts)
