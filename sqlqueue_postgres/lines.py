"""A walk along the fronts of FIFO lines: a loose index scan, which enters the index anew for each line.

The first entry of a line in its index is its front, so each step is one probe, however long the line is: among 500,000
rows, 300,000 of them of one line, 16 fronts took as long as without it (0.7 ms).
"""

from collections.abc import Mapping

from sqlqueue.sql import fill

# From behind `from_line` to the end and, once, on from the start. The seed takes its type and collation, and that of
# `from_line`, from the column. A line's guard is tried for a front that is free, and for no more than asked for: `free`
# is computed over one row.
WALK = """
WITH RECURSIVE _lines AS (
    (
        SELECT line, id, FALSE AS taken, FALSE AS wrapped, 0 AS found, 0 AS seen FROM (
            SELECT {line} AS line, {id} AS id FROM {table}
            WHERE FALSE
            UNION ALL
            SELECT {from_line}, NULL
        ) AS _start
    )
    UNION ALL
    SELECT _next.line, _next.id, _guard.taken, _next.wrapped,
           _lines.found + COALESCE(_guard.taken, FALSE)::int, _lines.seen + 1
    FROM _lines
    CROSS JOIN LATERAL (
        (
            SELECT {line} AS line, {id} AS id, _lines.wrapped AS wrapped, {free} AS free FROM {table}
            WHERE {unfinished}{line} > _lines.line
            ORDER BY {keys}
            LIMIT 1
        )
        UNION ALL
        (
            SELECT {line}, {id}, TRUE, {free} FROM {table}
            WHERE {unfinished}{line} IS NOT NULL AND NOT _lines.wrapped
            ORDER BY {keys}
            LIMIT 1
        )
        LIMIT 1
    ) AS _next
    CROSS JOIN LATERAL (
        SELECT {taking} AS taken
    ) AS _guard
    WHERE _lines.found < {limit} AND _lines.seen < {most}
      AND (NOT _next.wrapped OR {from_line} IS NULL OR _next.line <= {from_line})
)
{select}
"""

TRY_GUARD = "CASE WHEN _next.free THEN {guard} END"

# What the walk guarded is kept for the statement behind it in the transaction, which has a snapshot of its own.
KEEP = """
SELECT set_config('sqlqueue.lines', COALESCE(json_agg(json_build_object({name}, line)) FILTER (WHERE taken),
                  '[]')::text, TRUE) AS kept,
       (array_agg({read_line} ORDER BY seen DESC))[1] AS last_line, max(seen) AS seen,
       count(*) FILTER (WHERE taken) AS taken, bool_or(wrapped) AS wrapped
FROM _lines
"""

# Read with care, for the planner may do so where no walk has been. As records of the table the lines have the column's
# own type, whatever the declaration calls it.
KEPT = """
(
    SELECT {line} AS line
    FROM json_populate_recordset(NULL::{table}, NULLIF(current_setting('sqlqueue.lines', TRUE), '')::json)
) AS _kept
"""


def walk(parts: Mapping[str, str], guard: str) -> str:
    """The walk; `guard` is the condition that takes a line's guard, empty where none is taken."""
    taking = fill(TRY_GUARD, {"guard": guard}) if guard else "_next.free"
    return fill(WALK, {**parts, "taking": taking})
