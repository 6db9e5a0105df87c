"""Tasks that another program wrote in its own way: each is shown as far as it can be read, found, and resumed."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from sqlqueue import Broker
from sqlqueue.steps import TaskQueue, TaskState
from sqlqueue.testing.contract.step_kinds import GREETER, Greet, Part, Read
from tests.support.database import Database

ID = UUID("6f0c8b1e-52d7-4e0f-9d6c-2b8a41f7c3d5")
INSERT = "INSERT INTO pg_task (id, step, error) VALUES (?, ?, 'no')"
READ = '{"Greeter": {"Read": {"filename": "a"}}}'


def tasks_of(broker: Broker) -> TaskQueue:
    tasks = TaskQueue(broker, [GREETER])
    broker.create_tables()
    return tasks


@pytest.mark.parametrize("stored", [str(ID), str(ID).upper(), ID.hex, ID.hex.upper(), ID.bytes], ids=repr)
@pytest.mark.parametrize("given", [ID, str(ID), str(ID).upper(), ID.hex], ids=str)
def test_a_task_is_found_and_resumed_however_its_id_is_spelled(
    sqlite_database: Database, stored: Any, given: Any
) -> None:
    with Broker(sqlite_database.url) as broker:
        tasks = tasks_of(broker)
        chosen: list[Callable[[], dict[str, Any]]] = [
            lambda: {"ids": given},
            lambda: {"ids": tasks.list()},
            lambda: {"step": Read},
            lambda: {"ids": [given], "step": "Read"},
        ]
        for choice in chosen:
            sqlite_database.execute(INSERT, stored, READ)
            task = tasks.get(given)
            assert task is not None
            assert task.id == ID
            assert tasks.get(task) == task
            assert tasks.resume(step=Greet) == 0
            assert tasks.resume(**choice()) == 1
            sqlite_database.execute("DELETE FROM pg_task")


@pytest.mark.parametrize("odd", ["order-17", "17", b"\xff"], ids=repr)
def test_a_task_whose_id_is_no_uuid_hides_no_other_and_is_resumed_as_it_was_found(
    sqlite_database: Database, odd: Any
) -> None:
    with Broker(sqlite_database.url) as broker:
        tasks = tasks_of(broker)
        tasks.enqueue(Read("b"))
        sqlite_database.execute("UPDATE pg_task SET error = 'no'")
        sqlite_database.execute(INSERT, odd, READ)
        (task,) = [task for task in tasks.list("parked") if task.id == odd]
        assert (task.step, tasks.get(task)) == (Read("a"), task)
        assert tasks.resume(step=Read) == 2
        sqlite_database.execute("UPDATE pg_task SET error = 'no'")
        assert tasks.resume(task) == 1
        with pytest.raises(ValueError, match=r"is no id of its rows, which is UUID; give one, a row as it was shown"):
            tasks.resume(odd)


@pytest.mark.parametrize("wrong", ["nonsense", 17, b"nonsense", None], ids=repr)
def test_what_is_no_id_is_refused_where_an_id_is_looked_for(database: Database, wrong: Any) -> None:
    with Broker(database.url) as broker:
        tasks = tasks_of(broker)
        id = tasks.enqueue(Part())
        with pytest.raises(ValueError, match=r"is no id of its rows"):
            tasks.get(wrong)
        for step in (None, Part):
            with pytest.raises(ValueError, match=r"is no id of its rows"):
                tasks.resume([id, wrong], step=step)


@pytest.mark.parametrize(
    ("moment", "state"), [("tomorrow", TaskState.DELAYED), ("", TaskState.DUE), ("99", TaskState.DELAYED)]
)
def test_a_moment_that_cannot_be_read_hides_no_task(sqlite_database: Database, moment: str, state: TaskState) -> None:
    _shown_with(sqlite_database, moment, state)


@pytest.mark.parametrize(
    ("moment", "state"), [("infinity", TaskState.DELAYED), ("-infinity", TaskState.DUE), ("50000-01-01", None)]
)
def test_a_moment_that_no_datetime_holds_hides_no_task(
    postgres_database: Database, moment: str, state: TaskState | None
) -> None:
    _shown_with(postgres_database, moment, state or TaskState.DELAYED)


def _shown_with(database: Database, moment: str, state: TaskState) -> None:
    with Broker(database.url) as broker:
        tasks = tasks_of(broker)
        id, other = tasks.enqueue(Read("a")), tasks.enqueue(Part())
        database.execute(f"UPDATE pg_task SET wakeup_at = '{moment}', created_at = '{moment}' WHERE step LIKE '%Read%'")
        assert {task.id for task in tasks.list()} == {id, other}
        (task,) = [task for task in tasks.list(state) if task.id == id]
        assert (task.step, task.state, task.wakeup_at, task.created_at) == (Read("a"), state, None, None)
        shown = tasks.get(id)
        assert shown is not None
        assert shown.wakeup_at is None
