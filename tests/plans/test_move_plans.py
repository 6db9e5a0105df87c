"""What a dead letter costs on SQLite, and a row that is put back: each is found by its id."""

import pytest

from sqlqueue import Broker
from sqlqueue.destination import Destination
from sqlqueue.spec import spec_of
from sqlqueue.sql import Call
from sqlqueue.testing import ManualClock
from sqlqueue.testing.contract.tables import DeadJob, FullJob
from tests.plans.backlog import calls_of_dead_letters, filled
from tests.plans.test_plans import plan_of
from tests.support.database import Database


@pytest.mark.parametrize("place", ["group", "table"])
def test_a_move_and_what_puts_back_find_their_rows_by_id(sqlite_database: Database, place: str) -> None:
    with Broker(sqlite_database.url) as broker:
        broker.queue(DeadJob)
        queue = filled(broker, FullJob, ManualClock())
        destination = Destination(queue.spec, "dead") if place == "group" else Destination(spec_of(DeadJob))
        calls = calls_of_dead_letters(queue, destination)
        assert len(calls) == (2 if place == "group" else 3)
        for call in calls:
            one = {name: value[0] if name in call.statement.given else value for name, value in call.values.items()}
            steps = [step for details in plan_of(broker, Call(call.statement, one)).values() for step in details]
            assert [step.split(" ", 1)[1] for step in steps] == ["full_jobs USING INTEGER PRIMARY KEY (rowid=?)"]
