"""Wake: what a queue that has nothing to claim waits for. Every part is served by the claim's own index."""

from collections.abc import Callable, Sequence

from sqlqueue.clock import DatabaseClock, readable
from sqlqueue.dialect import Row
from sqlqueue.queue_sql import QueueSQL, every
from sqlqueue.roles import Role
from sqlqueue.sql import Statement, fill
from sqlqueue.strategies.claim import Ahead
from sqlqueue.strategies.order import by_level, claimable, has_levels, in_levels, with_levels

LOOK_AHEAD = """
SELECT {due} AS due, {hidden} AS hidden, {passed_over} AS passed_over, {now} AS now
"""

# When the next row falls due by `retry_after`. The first of each range of the index, for `min` would read all of a
# range whose values are converted. Leases have no index: a consumer knows its own, and finds others' by polling.
DUE = """
(
    SELECT min(ahead) FROM (
        {ranges}
    ) AS _ranges
)
"""

AHEAD = """
SELECT ahead FROM (
    SELECT {value} AS ahead FROM {table}
    WHERE {condition}
    ORDER BY {moment}
    LIMIT 1
) AS _range_{number}
"""

# With priorities the first of each.
AHEAD_BY_LEVEL = """
SELECT ahead FROM (
    {levels}
) AS _range_{number}
"""

FIRST_OF_LEVEL = """
SELECT (
    SELECT {value} FROM {table}
    WHERE {condition}
    ORDER BY {moment}
    LIMIT 1
) AS ahead FROM _levels
"""

# Whether there is such a row. Not EXISTS, which leaves out the order and then may read a table full of dead rows.
FIRST = """
SELECT {id} AS id FROM {table}
WHERE {condition}
ORDER BY {claim_order}
LIMIT 1{beyond}
"""

ANY = """
(
    {first}
) IS NOT NULL
"""


def look_ahead(sql: QueueSQL, *, free: Sequence[str], own_shown: bool = False) -> Statement:
    """A row for `due_reader`: when the next row falls due or NULL, whether unfinished rows are left, whether one is due
    that a claim passed over. `free`: the strategy's conditions for rows in nobody's hands. `own_shown`: the rows in
    this consumer's hands meet them as well; there are `:held`."""
    capabilities = sql.dialect.capabilities
    beyond = " OFFSET :held" if own_shown else ""
    select = select_ahead(
        sql,
        due=_due(sql) if sql.spec.has(Role.RETRY_AFTER) else "NULL",
        # Where commits may escape the waker the queue is polled in any case.
        hidden=_any(sql, sql.unfinished(), "") if capabilities.watches else "TRUE",
        # Without row locks nothing is passed over.
        passed_over=_any(sql, [*claimable(sql), *free], beyond) if capabilities.row_locks else "FALSE",
    )
    return sql.statement("look ahead", "{select}", width=4, writes=False, select=select)


def select_ahead(sql: QueueSQL, *, due: str, hidden: str, passed_over: str) -> str:
    """The row that `due_reader` reads, of what is asked for each of its values."""
    now = sql.now(Role.RETRY_AFTER) if _by_database(sql) else "NULL"
    return fill(LOOK_AHEAD, {"due": due, "hidden": hidden, "passed_over": passed_over, "now": now})


def first_of(ranges: Sequence[str]) -> str:
    """The first moment `ahead` of all these SELECTs."""
    return fill(DUE, {"ranges": "\nUNION ALL\n".join(ranges)})


def due_reader(sql: QueueSQL) -> Callable[[Sequence[Row]], Ahead]:
    """Reads what a look ahead returned."""
    decode = sql.decoder(Role.RETRY_AFTER)
    by_database = _by_database(sql)

    def read(rows: Sequence[Row]) -> Ahead:
        ((due, hidden, passed_over, now),) = rows
        return Ahead(
            due=readable(decode, due),
            hidden=bool(hidden),
            passed_over=bool(passed_over),
            now=readable(decode, now) if by_database else None,
        )

    return read


def _by_database(sql: QueueSQL) -> bool:
    return isinstance(sql.spec.clock, DatabaseClock) and sql.spec.has(Role.RETRY_AFTER)


def _due(sql: QueueSQL) -> str:
    spec = sql.spec.role(Role.RETRY_AFTER)
    assert spec is not None
    moment = sql.moment(Role.RETRY_AFTER)
    ranges = [
        _range(sql, value, condition, moment, str(number))
        for number, (value, condition) in enumerate(sql.dialect.ahead(moment, spec, sql.now(Role.RETRY_AFTER)))
    ]
    return first_of(ranges)


def _range(sql: QueueSQL, value: str, condition: str, moment: str, number: str) -> str:
    level = [in_levels(sql)] if has_levels(sql) else []
    fragments = {
        "table": sql.dialect.table(sql.spec),
        "value": value,
        "condition": every([*sql.unfinished(), *level, condition]),
        "moment": moment,
        "number": number,
    }
    if not level:
        return fill(AHEAD, fragments)
    return fill(AHEAD_BY_LEVEL, {"levels": with_levels(sql, fill(FIRST_OF_LEVEL, fragments)), "number": number})


def _any(sql: QueueSQL, conditions: list[str], beyond: str) -> str:
    levels = has_levels(sql)
    first = fill(
        FIRST,
        {
            "id": sql.column(Role.ID),
            "table": sql.dialect.table(sql.spec),
            "condition": every([*conditions, *([in_levels(sql)] if levels else [])]),
            "claim_order": ", ".join(sql.order()[1:] if levels else sql.order()),
            "beyond": beyond,
        },
    )
    return fill(ANY, {"first": by_level(sql, first, 1) if levels else first})
