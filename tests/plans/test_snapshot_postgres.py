"""What a claim costs while a transaction elsewhere keeps the server from removing the rows that are done."""

from operator import attrgetter
from typing import Any

import pytest

from sqlqueue import Broker
from sqlqueue.outcome import ACKNOWLEDGE
from sqlqueue.strategies.claim import Turn
from sqlqueue.testing import ManualClock
from sqlqueue.testing.contract import Holder, created
from sqlqueue.testing.contract.tables import CountedJob, Job
from tests.plans.overheard import Overheard
from tests.plans.test_plans_postgres import MOST_BUFFERS, MOST_BUFFERS_A_ROW, explain
from tests.support.database import Database

PASSED = 20_000
BATCH = 16


@pytest.mark.parametrize("declared", [Job, CountedJob], ids=attrgetter("__name__"))
def test_a_claim_costs_what_it_cost_while_a_snapshot_is_held_open(postgres_database: Database, declared: Any) -> None:
    """PAINS 20: it begins behind the rows that are done, whose entries stay in the index."""
    with Broker(postgres_database.url) as broker:
        queue = created(broker, declared, ManualClock())
        queue.enqueue_many(str(number) for number in range(PASSED + BATCH))
        snapshot = postgres_database.connect()
        snapshot.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        snapshot.execute("SELECT FROM pg_class LIMIT 1")
        holder = Holder(queue, most=BATCH)
        claims = holder.claim(BATCH)
        passed = 0
        while passed < PASSED:
            passed += len(claims)
            claims = holder.turn([(claim, ACKNOWLEDGE) for claim in claims], BATCH).claims
        assert len(claims) == BATCH
        holder.settle(*[(claim, ACKNOWLEDGE) for claim in claims])
        queue.enqueue_many("more" for _ in range(BATCH))
        with broker.pool.connection() as connection:
            overheard: Any = Overheard(connection)
            assert len(holder.lease.turn(overheard, Turn(limit=BATCH, now=holder.clock.now())).claims) == BATCH
        connection = postgres_database.connect()
        postgres_database.execute(f"UPDATE {queue.spec.name} SET locked_until = NULL")
        connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
        (call,) = overheard.calls
        plan = explain(connection, call, "force_generic_plan")
        assert plan["Actual Rows"] == BATCH
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= MOST_BUFFERS + MOST_BUFFERS_A_ROW * BATCH
