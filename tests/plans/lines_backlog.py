"""Tables with many FIFO lines, one of them long and in work, and the calls that a consumer makes on them."""

from collections.abc import Sequence
from typing import Any

from sqlqueue import Broker, Queue, Role
from sqlqueue.connection import Connection
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.sql import Call, fill
from sqlqueue.strategies.claim import Turn
from sqlqueue.testing import ManualClock
from sqlqueue.testing.contract import created
from sqlqueue.testing.contract.line_tables import GroupedLineJob, LineJob, RankedLineJob
from tests.golden.golden import Case, strategy_of
from tests.plans.overheard import Overheard
from tests.support.database import Database

#: Rows, half of which stand in one line.
MANY = 40_000

#: Lines whose fronts are scheduled ahead.
HELD_UP = 3_000

#: The declarations, by the shape of their lines.
DECLARED = [LineJob, RankedLineJob, GroupedLineJob]

FILL = """
INSERT INTO {table} (account, due_at, attempt, payload{more})
WITH RECURSIVE numbers(number) AS (
    SELECT 0
    UNION ALL
    SELECT number + 1 FROM numbers
    WHERE number < {many} - 1
)
SELECT {account}, {due_at}, 0, '1'{values} FROM numbers
"""

IN_WORK = """
UPDATE {table} SET locked_until = '2100-01-01 00:00:00'
WHERE id = (SELECT min(id) FROM {table} WHERE account = 'k20')
"""

BUSY = "CASE number % 2 WHEN 0 THEN 'k20' ELSE 'k' || CAST(number % 20000 AS text) END"


def group_of(spec: TableSpec) -> str | None:
    return "mail" if spec.has(Role.GROUP) else None


def filled(database: Database, broker: Broker, declared: type, clock: ManualClock) -> Queue:
    """The queue with a long line, which is in work, among ten thousand others."""
    queue = created(broker, declared, clock, group=group_of(spec_of(declared)))
    _fill(database, queue, MANY, BUSY, "NULL")
    if queue.spec.has(Role.LEASE):
        database.execute(fill(IN_WORK, {"table": queue.spec.name}))
    database.execute("ANALYZE")
    return queue


def held_up(database: Database, broker: Broker, declared: type, clock: ManualClock) -> Queue:
    """The queue with lines whose fronts are all scheduled ahead."""
    queue = created(broker, declared, clock, group=group_of(spec_of(declared)))
    _fill(database, queue, HELD_UP, "'k' || CAST(number AS text)", "'2100-01-01 00:00:00'")
    _fill(database, queue, 4 * HELD_UP, "'k' || CAST(number % 3000 AS text)", "NULL")
    database.execute("ANALYZE")
    return queue


def _fill(database: Database, queue: Queue, many: int, account: str, due_at: str) -> None:
    more = {"queue_name": "'mail'", "priority": "1"}
    columns = [column.name for column in queue.spec.columns if column.name in more]
    database.execute(
        fill(
            FILL,
            {
                "table": queue.spec.name,
                "many": str(many),
                "account": account,
                "due_at": due_at,
                "more": "".join(f", {name}" for name in columns),
                "values": "".join(f", {more[name]}" for name in columns),
            },
        )
    )


def calls_of_a_claim(queue: Queue, case: Case, limit: int, found: int) -> Sequence[Call]:
    """The calls of a claim of up to `limit` rows, which finds so many, and of the look ahead; undone."""
    clock = queue.spec.clock
    assert isinstance(clock, ManualClock)
    strategy: Any = strategy_of(queue, case)
    with queue.broker.pool.connection() as connection:
        overheard: Any = Overheard(_in_transaction(queue, connection))
        claims = strategy.turn(overheard, Turn(limit=limit, now=clock.now())).claims
        assert len(claims) == found
        strategy.look_ahead(overheard, clock.now(), held=found)
        connection.driver.execute("ROLLBACK")
    return list(overheard.calls)


def _in_transaction(queue: Queue, connection: Connection) -> Connection:
    if not queue.spec.has(Role.LEASE):
        return connection
    connection.driver.execute("BEGIN")
    adopted = queue.broker.dialect.adopt(connection.driver)
    assert adopted is not None
    return adopted
