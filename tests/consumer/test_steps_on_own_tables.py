"""Step tasks on a table of the user's own, whatever type its column of steps has."""

from datetime import datetime
from typing import Any

import pytest

from sqlqueue import Broker, ColumnSpec, Role, TableSpec
from sqlqueue.steps import TaskQueue, TaskState
from sqlqueue.testing.contract.step_kinds import GREETER, Read
from tests.support.database import Database


def own_table(payload: type) -> TableSpec:
    return TableSpec(
        name="errands",
        columns=(
            ColumnSpec(field="key", type=int, role=Role.ID, generated=True),
            ColumnSpec(field="state", type=payload, role=Role.PAYLOAD),
            ColumnSpec(field="due_at", type=datetime, role=Role.RETRY_AFTER),
            ColumnSpec(field="tries", type=int, role=Role.ATTEMPT, generated=True),
            ColumnSpec(field="busy", type=bool, role=Role.RUNNING, generated=True),
            ColumnSpec(field="problem", type=str, optional=True, role=Role.ERROR, generated=True),
            ColumnSpec(field="held_until", type=datetime, optional=True, role=Role.LEASE, generated=True),
        ),
    )


@pytest.mark.parametrize("payload", [str, bytes, dict])
def test_a_step_is_shown_and_found_by_whichever_type_holds_it(database: Database, payload: type) -> None:
    with Broker(database.url) as broker:
        tasks = TaskQueue(broker, [GREETER], table=own_table(payload))
        broker.create_tables()
        id = tasks.enqueue(Read("ä"))
        database.execute("UPDATE errands SET problem = 'no'")
        (task,) = tasks.list(TaskState.PARKED)
        assert (task.id, task.task, task.name, task.step) == (id, "Greeter", "Read", Read("ä"))
        assert task.stored is not None
        assert "ä" in task.stored
        assert tasks.resume(step=Read) == 1


@pytest.mark.parametrize("spelt", [str, lambda id: id], ids=["text", "uuid"])
def test_a_task_is_resumed_by_its_id_in_either_spelling_beside_its_step(database: Database, spelt: Any) -> None:
    with Broker(database.url) as broker:
        tasks = TaskQueue(broker, [GREETER])
        broker.create_tables()
        id = tasks.enqueue(Read("a"))
        database.execute("UPDATE pg_task SET error = 'no'")
        assert tasks.resume(spelt(id), step="Read") == 1
