"""What a dead letter costs on PostgreSQL, and a row that is put back: each is found by its id."""

import pytest

from sqlqueue import Broker
from sqlqueue.destination import Destination
from sqlqueue.spec import spec_of
from sqlqueue.testing import ManualClock
from sqlqueue.testing.contract.tables import DeadJob, FullJob
from tests.plans.backlog import calls_of_dead_letters, filled
from tests.plans.test_plans_postgres import explain, indexes, nodes
from tests.support.database import Database


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize("place", ["group", "table"])
def test_a_move_and_what_puts_back_find_their_rows_by_id(postgres_database: Database, place: str, mode: str) -> None:
    with Broker(postgres_database.url) as broker:
        broker.queue(DeadJob)
        queue = filled(broker, FullJob, ManualClock())
        postgres_database.execute("ANALYZE full_jobs")
        destination = Destination(queue.spec, "dead") if place == "group" else Destination(spec_of(DeadJob))
        calls = calls_of_dead_letters(queue, destination)
        assert len(calls) == 2
        for call in calls:
            plan = explain(postgres_database.connect(), call, mode)
            assert "Seq Scan" not in {node["Node Type"] for node in nodes(plan)}
            assert indexes(plan) == {"full_jobs_pkey"}
