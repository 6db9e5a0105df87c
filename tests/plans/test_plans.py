"""What a look costs on SQLite, beside rows that are scheduled ahead, processed or parked."""

import re
from operator import attrgetter

import pytest

from sqlqueue import Broker
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.testing import ManualClock
from sqlqueue_sqlite.prepared import prepare
from tests.plans.backlog import DECLARED, calls_of_a_look, calls_of_a_look_for_tasks, filled, filled_with_tasks
from tests.support.database import Database

EXPLAIN = """
EXPLAIN QUERY PLAN
{statement}
"""

#: Instructions of SQLite's machine. A look takes some 2,000; one that read all of the rows, several hundred thousand.
MOST_STEPS = 5_000
GRAIN = 100

_SORT = re.compile(r"USE TEMP B-TREE FOR (?!DISTINCT)")


@pytest.mark.parametrize("declared", DECLARED, ids=attrgetter("__name__"))
def test_a_look_walks_ranges_of_the_claims_index_and_sorts_no_rows_of_the_table(
    sqlite_database: Database, declared: type
) -> None:
    """PAINS 21"""
    with Broker(sqlite_database.url) as broker:
        queue = filled(broker, declared, ManualClock())
        table = queue.spec.name
        for call in calls_of_a_look(queue):
            for details in plan_of(broker, call).values():
                reads = [one for one in details if re.match(rf"(SCAN|SEARCH) (TABLE )?{table}\b", one)]
                by_index = [one for one in reads if f"INDEX {table}_claim_" in one]
                by_id = [one for one in reads if "USING INTEGER PRIMARY KEY (rowid=?)" in one]
                assert sorted(by_index + by_id) == sorted(reads)
                assert not by_index or not any(_SORT.match(one) for one in details)
            assert steps_of(sqlite_database, call) < MOST_STEPS


def test_a_look_for_tasks_takes_few_steps_beside_parked_and_delayed_ones(sqlite_database: Database) -> None:
    with Broker(sqlite_database.url) as broker:
        tasks = filled_with_tasks(broker, sqlite_database, ManualClock())
        for call in calls_of_a_look_for_tasks(tasks):
            assert steps_of(sqlite_database, call) < MOST_STEPS


def plan_of(broker: Broker, call: Call) -> dict[int, list[str]]:
    """The steps of the plan by the step that they belong to."""
    text = fill(EXPLAIN, {"statement": call.statement.text})
    question = Statement("explain", text, call.statement.parameters, width=4, writes=False)
    steps: dict[int, list[str]] = {}
    with broker.pool.connection() as connection:
        for _, parent, _, detail in connection.run([Call(question, call.values)])[0]:
            steps.setdefault(parent, []).append(detail)
    return steps


def steps_of(database: Database, call: Call) -> int:
    """How many instructions the statement takes, in grains."""
    connection, prepared, grains = database.connect(), prepare(call.statement), 0

    def count() -> int:
        nonlocal grains
        grains += 1
        return 0

    connection.execute("BEGIN")
    connection.set_progress_handler(count, GRAIN)
    connection.execute(prepared.text, prepared.pick(call.values)).fetchall()
    connection.set_progress_handler(None, 0)
    connection.execute("ROLLBACK")
    return grains * GRAIN
