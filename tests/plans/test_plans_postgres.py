"""What a look costs on PostgreSQL, beside rows that are scheduled ahead, processed or parked."""

from collections.abc import Iterator, Mapping
from itertools import product
from operator import attrgetter
from typing import Any

import psycopg
import pytest

from sqlqueue import Broker
from sqlqueue.spec import spec_of
from sqlqueue.sql import Call
from sqlqueue.strategies.advisory import Advisory
from sqlqueue.strategies.key_locks import KeyLocked
from sqlqueue.strategies.row_lock import RowLock
from sqlqueue.testing import ManualClock
from sqlqueue.testing.contract.tables import FullJob
from tests.golden.golden import Case, without_lease
from tests.plans.backlog import (
    DECLARED,
    DUE,
    calls_of_a_connection_worker,
    calls_of_a_look,
    calls_of_a_look_for_tasks,
    filled,
    filled_with_tasks,
)
from tests.support.database import Database
from tests.support.postgres import outwait_others

#: Buffers that finding the rows may read. Writing the ten that are found comes on top, whatever stands beside them.
MOST_BUFFERS = 100

#: What locking a further row of a batch, or writing it, may read and write: the row, and each of its indexes.
MOST_BUFFERS_A_ROW = 20

# The one that we recommend, beside that of the primary key.
CLAIM_INDEX = """
SELECT indexname FROM pg_indexes
WHERE schemaname = current_schema() AND tablename = ? AND indexname NOT LIKE '%_pkey'
"""

Plan = Mapping[str, Any]


@pytest.mark.parametrize("declared", DECLARED, ids=attrgetter("__name__"))
def test_a_look_walks_ranges_of_the_claims_index_and_reads_few_buffers(
    postgres_database: Database, declared: type
) -> None:
    """PAINS 21: planned for its values or for any, with statistics or before there are any."""
    with Broker(postgres_database.url) as broker:
        queue = filled(broker, declared, ManualClock())
        claim, look = calls_of_a_look(queue)
        connection = postgres_database.connect()
        ((index,),) = postgres_database.execute(CLAIM_INDEX, queue.spec.name)
        for prepare in ("SELECT 1", "ANALYZE"):
            connection.execute(prepare)
            for mode in ("force_custom_plan", "force_generic_plan"):
                (due,) = [
                    node for node in nodes(explain(connection, claim, mode)) if node.get("Subplan Name") == "CTE _due"
                ]
                for plan in (due, explain(connection, look, mode)):
                    assert buffers(plan) <= MOST_BUFFERS
                    assert {"Seq Scan"} & {node["Node Type"] for node in nodes(plan)} == set()
                    assert indexes(plan) == {index}


@pytest.mark.parametrize("declared", DECLARED, ids=attrgetter("__name__"))
def test_a_connection_workers_claim_walks_ranges_of_the_claims_index_and_reads_few_buffers(
    postgres_database: Database, declared: type
) -> None:
    """PAINS 21: by row lock, by the sessions' locks and by locks that others keep, and the first two in batches."""
    group = "mail" if declared is FullJob else None
    with Broker(postgres_database.url) as broker:
        filled(broker, declared, ManualClock())
        connection = postgres_database.connect()
        connection.execute("ANALYZE")
        ((index,),) = postgres_database.execute(CLAIM_INDEX, spec_of(declared).name)
        for strategy, batch in ((RowLock, 1), (Advisory, 1), (KeyLocked, 1), (RowLock, 10), (Advisory, 10)):
            lock = None if strategy is RowLock else "row-{id}"
            spec = without_lease(declared, advisory_lock=lock, clock=ManualClock())
            case = Case("", spec, strategy, group, batch=batch)
            calls = calls_of_a_connection_worker(broker.queue(case.declared, group), case)
            for call, mode in product(calls, ("force_custom_plan", "force_generic_plan")):
                plan = explain(connection, call, mode)
                most = MOST_BUFFERS + MOST_BUFFERS_A_ROW * (batch - 1)
                assert buffers(plan) <= most
                read = {node["Relation Name"] for node in nodes(plan) if node["Node Type"] == "Seq Scan"}
                assert read <= {"pg_database"}  # its advisory locks are those of this database
                assert indexes(plan) <= {index, f"{spec_of(declared).name}_pkey"}


def test_a_look_for_tasks_reads_few_buffers_beside_parked_and_delayed_ones(postgres_database: Database) -> None:
    with Broker(postgres_database.url) as broker:
        tasks = filled_with_tasks(broker, postgres_database, ManualClock())
        connection = postgres_database.connect()
        connection.execute("VACUUM ANALYZE pg_task")
        ((index,),) = postgres_database.execute(CLAIM_INDEX, "pg_task")
        for call, mode in product(calls_of_a_look_for_tasks(tasks), ("force_custom_plan", "force_generic_plan")):
            plan = explain(connection, call, mode)
            most = MOST_BUFFERS + MOST_BUFFERS_A_ROW * DUE
            assert buffers(plan) <= most
            assert {"Seq Scan"} & {node["Node Type"] for node in nodes(plan)} == set()
            assert indexes(plan) <= {index, "pg_task_pkey"}


def explain(connection: "psycopg.Connection[Any]", call: Call, mode: str) -> Plan:
    """The plan of a call that is run and undone, with what each of its nodes read: the one of two runs that read less.

    Each run leaves dead rows to the next. Transactions of other databases on the server decide when an index forgets
    them, so a run may read a few entries that are none of the call's.
    """
    return min((_explain(connection, call, mode) for _ in range(2)), key=buffers)


def buffers(plan: Plan) -> int:
    """The blocks that a plan read."""
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])


def _explain(connection: "psycopg.Connection[Any]", call: Call, mode: str) -> Plan:
    values = call.statement.bind(call.values)
    execute = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE look({', '.join(['%s'] * len(values))})"
    outwait_others(connection)
    with connection.transaction(force_rollback=True):
        connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
        connection.execute(f"PREPARE look AS {call.statement.text}")
        row = psycopg.ClientCursor(connection).execute(execute, values).fetchone()
        connection.execute("DEALLOCATE look")
        connection.execute("SELECT pg_advisory_unlock_all()")
    assert row is not None
    plan: Plan = row[0][0]["Plan"]
    return plan


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def indexes(plan: Plan) -> set[str]:
    return {node["Index Name"] for node in nodes(plan) if "Index Name" in node}
