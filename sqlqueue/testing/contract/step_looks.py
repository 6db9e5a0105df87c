"""Step tasks as people see them: listed, shown, resumed, and told to a history."""

from uuid import UUID

import pytest

from sqlqueue.broker import Broker
from sqlqueue.steps import StepRun, StoredTask, Task, TaskState
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Database
from sqlqueue.testing.contract.step_kinds import (
    GREETER,
    OTHERS,
    Count,
    Greet,
    Read,
    StepsBase,
    World,
    insert,
    tasks_on,
)
from sqlqueue.testing.drain import drain


class StepLooksContract(StepsBase):
    """What is known of tasks."""

    def test_tasks_are_listed_by_their_state(
        self, database: Database, broker: Broker, clock: ManualClock, world: World
    ) -> None:
        tasks = tasks_on(broker, clock)
        running, parked = tasks.enqueue(Count(1)), tasks.enqueue(Count(2))
        foreign, lost = tasks.enqueue(Count(3)), tasks.enqueue(Count(4))
        delayed, due = tasks.delay(Count(5), 60), tasks.enqueue(Count(6))
        database.execute("UPDATE pg_task SET is_running = TRUE WHERE step LIKE '%1}}}'")
        database.execute("UPDATE pg_task SET locked_until = '2030-01-01 00:00:10+00:00' WHERE is_running = TRUE")
        database.execute("UPDATE pg_task SET error = 'no' WHERE step LIKE '%2}}}'")
        database.execute("UPDATE pg_task SET is_running = TRUE WHERE step LIKE '%3}}}' OR step LIKE '%4}}}'")
        database.execute("UPDATE pg_task SET locked_until = '2029-12-31 00:00:00+00:00' WHERE step LIKE '%4}}}'")
        states = {
            TaskState.RUNNING: {running, foreign},
            TaskState.PARKED: {parked},
            TaskState.DELAYED: {delayed},
            TaskState.DUE: {due, lost},
        }
        for state, ids in states.items():
            assert {task.id for task in tasks.list(state)} == ids
            assert {task.state for task in tasks.list(state.value)} == {state}
        assert [task.id for task in tasks.list()][-1] == delayed
        assert len(tasks.list(limit=4)) == 4

    def test_a_task_is_shown_with_what_there_is_to_know(self, broker: Broker, clock: ManualClock) -> None:
        tasks = tasks_on(broker, clock)
        id = tasks.enqueue(Read("ann"))
        shown = tasks.get(id)
        assert shown is not None
        assert shown == StoredTask(
            id=id,
            task="Greeter",
            name="Read",
            step=Read("ann"),
            stored='{"Greeter":{"Read":{"filename":"ann"}}}',
            state=TaskState.DUE,
            wakeup_at=clock.now(),
            tried=0,
            error=None,
            locked_until=None,
            created_at=shown.created_at,
            updated_at=shown.updated_at,
        )
        assert shown.created_at is not None
        assert shown.created_at.tzinfo is not None
        assert tasks.get(UUID(int=0)) is None

    def test_what_does_not_decode_is_shown_as_it_is_stored(self, database: Database, broker: Broker) -> None:
        tasks = tasks_on(broker)
        for stored in ("nonsense", '{"Old": {"Step": 1}}', '{"Greeter": {"Read": {}}}'):
            insert(database, stored)
        found = {task.stored: (task.task, task.name, task.step) for task in tasks.list()}
        assert found == {
            "nonsense": (None, None, None),
            '{"Old": {"Step": 1}}': ("Old", "Step", None),
            '{"Greeter": {"Read": {}}}': ("Greeter", "Read", None),
        }

    def test_some_of_the_parked_tasks_are_resumed(self, database: Database, broker: Broker) -> None:
        tasks = tasks_on(broker, None, GREETER, Task("Others", OTHERS.steps, aliases={"Old.Count": Count}))
        ids = [tasks.enqueue(step) for step in (Count(1), Count(2), Read("a"), Greet("b"))]
        insert(database, '{"Old": {"Count": 3}}')
        insert(database, "nonsense")
        database.execute("UPDATE pg_task SET error = 'no'")
        assert tasks.resume(ids[0]) == 1
        assert tasks.resume([ids[0], UUID(int=0)]) == 0
        assert tasks.resume(ids, step=Count) == 1
        assert tasks.resume(step="Greeter.Greet") == 1
        assert tasks.resume(step="Old.Count") == 1
        assert {task.stored for task in tasks.list("parked")} == {'{"Greeter":{"Read":{"filename":"a"}}}', "nonsense"}
        connection = database.connect()
        connection.execute("BEGIN")
        assert tasks.resume(step=Read, connection=connection) == 1
        connection.execute("ROLLBACK")
        assert tasks.resume() == 2
        with pytest.raises(ValueError, match=r"step='Wave' is no step of these tasks; they are Greeter.Read, "):
            tasks.resume(step="Wave")

    def test_each_run_is_told_once_it_is_settled(
        self, broker: Broker, clock: ManualClock, world: World, database: Database
    ) -> None:
        told: list[StepRun] = []
        tasks = tasks_on(broker, clock, on_step=told.append)
        id = tasks.enqueue(Count(1))
        world.broken = True
        drain(broker)
        clock.advance(3)
        drain(broker)
        world.broken = False
        tasks.resume()
        drain(broker)
        assert [(run.id, run.task, run.step) for run in told] == [(id, "Others", "Count")] * 3
        assert [(run.attempt, run.outcome, run.error) for run in told] == [
            (1, "retried", "RuntimeError: cannot count"),
            (2, "parked", "RuntimeError: cannot count"),
            (1, "acknowledged", None),
        ]
        assert all(run.seconds is not None and run.seconds >= 0 for run in told)

    def test_a_task_that_is_parked_untried_is_told_with_the_names_that_can_be_read(
        self, broker: Broker, clock: ManualClock, database: Database
    ) -> None:
        told: list[StepRun] = []
        tasks_on(broker, clock, on_step=told.append)
        for stored in ('{"Others": {"Count": "x"}}', "nonsense"):
            insert(database, stored)
        drain(broker)
        assert sorted((run.task or "", run.step or "", run.attempt, run.seconds, run.outcome) for run in told) == [
            ("", "", 0, None, "parked"),
            ("Others", "Count", 0, None, "parked"),
        ]
        assert {run.error for run in told} == {error for (error,) in database.execute("SELECT error FROM pg_task")}

    def test_a_history_that_fails_stops_nobody(self, broker: Broker, world: World) -> None:
        def fail(run: StepRun) -> None:
            raise RuntimeError("no history")

        tasks = tasks_on(broker, on_step=fail)
        tasks.enqueue(Count(1))
        tasks.enqueue(Count(2))
        drain(broker)
        assert len(world.seen) == 2
