"""What a queue that has nothing to claim waits for: when the next row falls due, and whether any row is left.

Every part of the statement is served by the claim's own index.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlqueue.clock import DatabaseClock, readable
from sqlqueue.dialect import Connection
from sqlqueue.queue_sql import QueueSQL, every
from sqlqueue.roles import Role
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.statements import unfinished
from sqlqueue.strategies.claim import NOBODY, PassOver, Upcoming
from sqlqueue.strategies.order import by_priority, claimable, has_priorities, of_priority, with_priorities
from sqlqueue.strategies.plan import Parameters, QueuePlan

UPCOMING = """
SELECT {due} AS due, {hidden} AS hidden, {passed_over} AS passed_over, {now} AS now
"""

# When the next row falls due by `retry_after`. The first of each range of the index, for `min` would read all of a
# range whose values are converted. Leases have no index: a consumer knows its own, and finds others' by polling.
FIRST_DUE = """
(
    SELECT min(ahead) FROM (
        {ranges}
    ) AS _ranges
)
"""

DUE_IN_RANGE = """
SELECT ahead FROM (
    SELECT {value} AS ahead FROM {table}
    WHERE {condition}
    ORDER BY {moment}
    LIMIT 1
) AS _range_{number}
"""

# With priorities the first of each.
DUE_IN_RANGE_BY_PRIORITY = """
SELECT ahead FROM (
    {firsts}
) AS _range_{number}
"""

FIRST_OF_PRIORITY = """
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


def next_due(sql: QueueSQL, *, free: Sequence[str], own_shown: bool = False) -> Statement:
    """A row for `Inquiry`: when the next row falls due or NULL, whether unfinished rows are left, whether one is due
    that a claim passed over. `free`: the strategy's conditions for rows that nobody holds. `own_shown`: this consumer's
    rows in flight meet them as well; there are `:held`."""
    capabilities = sql.dialect.capabilities
    beyond = " OFFSET :held" if own_shown else ""
    select = select_upcoming(
        sql,
        due=_due(sql) if sql.spec.has(Role.RETRY_AFTER) else "NULL",
        # Where commits may escape the waker the queue is polled in any case.
        hidden=_any(sql, sql.unfinished(), "") if capabilities.watches else "TRUE",
        # Without row locks nothing is passed over.
        skipped=_any(sql, [*claimable(sql), *free], beyond) if capabilities.row_locks else "FALSE",
    )
    return sql.statement("look ahead", "{select}", width=4, writes=False, select=select)


def select_upcoming(sql: QueueSQL, *, due: str, hidden: str, skipped: str) -> str:
    """The row that `Inquiry` reads, of what is asked for each of its values."""
    now = sql.now(Role.RETRY_AFTER) if _by_database(sql) else "NULL"
    return fill(UPCOMING, {"due": due, "hidden": hidden, "passed_over": skipped, "now": now})


def first_of(ranges: Sequence[str]) -> str:
    """The first moment `ahead` of all these SELECTs."""
    return fill(FIRST_DUE, {"ranges": "\nUNION ALL\n".join(ranges)})


class Inquiry:
    """What a strategy asks about its queue without claiming.

    `next_due`: the statement for what a queue with nothing to claim waits for.
    """

    def __init__(self, plan: QueuePlan, parameters: Parameters, next_due: Statement) -> None:
        self._parameters, self._group, self._next_due = parameters, plan.group, next_due
        self._unfinished = unfinished(plan.sql)
        self._decode_due = plan.sql.decoder(Role.RETRY_AFTER)
        self._due_by_database = _by_database(plan.sql)

    def look_ahead(
        self, connection: Connection, now: datetime, pass_over: PassOver = NOBODY, held: int = 0
    ) -> Upcoming:
        return self._ask(connection, {**self._parameters.values(now, pass_over), "held": held})

    def _ask(self, connection: Connection, values: Mapping[str, Any]) -> Upcoming:
        (((due, hidden, skipped, database_now),),) = connection.run([Call(self._next_due, values)])
        return Upcoming(
            due=None if due is None else readable(self._decode_due, due),
            hidden=bool(hidden),
            skipped=bool(skipped),
            now=readable(self._decode_due, database_now) if self._due_by_database else None,
        )

    def unfinished(self, connection: Connection, id: Any) -> bool:
        return bool(connection.run([Call(self._unfinished, {"id": id, "group": self._group})])[0])


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
    one_priority = [of_priority(sql)] if has_priorities(sql) else []
    fragments = {
        "table": sql.dialect.table(sql.spec),
        "value": value,
        "condition": every([*sql.unfinished(), *one_priority, condition]),
        "moment": moment,
        "number": number,
    }
    if not one_priority:
        return fill(DUE_IN_RANGE, fragments)
    firsts = with_priorities(sql, fill(FIRST_OF_PRIORITY, fragments))
    return fill(DUE_IN_RANGE_BY_PRIORITY, {"firsts": firsts, "number": number})


def _any(sql: QueueSQL, conditions: list[str], beyond: str) -> str:
    one_by_one = has_priorities(sql)
    first = fill(
        FIRST,
        {
            "id": sql.column(Role.ID),
            "table": sql.dialect.table(sql.spec),
            "condition": every([*conditions, *([of_priority(sql)] if one_by_one else [])]),
            "claim_order": ", ".join(sql.order()[1:] if one_by_one else sql.order()),
            "beyond": beyond,
        },
    )
    return fill(ANY, {"first": by_priority(sql, first, 1) if one_by_one else first})
