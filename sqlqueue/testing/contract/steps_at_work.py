"""Step tasks at work: what people see of them, transactional steps, and several queues in one consumer."""

from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, ClassVar

import attrs
import pytest

from sqlqueue import column
from sqlqueue.broker import Broker
from sqlqueue.clock import Duration
from sqlqueue.consumer import Consumer
from sqlqueue.errors import DeclarationError, TransactionError
from sqlqueue.retry import RetryPolicy
from sqlqueue.steps import Next, Step, StepContext, Task, TaskQueue, TaskState, task_table
from sqlqueue.table import table
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import LIMIT, Database, OpenBroker, created, shown
from sqlqueue.testing.contract.step_kinds import (
    GREETER,
    OTHERS,
    WORLD,
    Count,
    Lead,
    Part,
    Read,
    Slow,
    StepsBase,
    World,
    rows,
    see,
    tasks_on,
)
from sqlqueue.testing.contract.tables import Job
from sqlqueue.testing.contract.transactional import CREATE_NOTES, NOTES, write
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder


@attrs.frozen
class Write(Step):
    """Writes a note in its own transaction."""

    retry_limit: ClassVar[int] = 2
    retry_delay: ClassVar[Duration | RetryPolicy] = 0
    transactional: ClassVar[bool] = True
    note: str

    def run(self, context: StepContext) -> Next:
        see(context, self.note)
        write(context.connection, self.note)
        if self.note == "ends":
            context.connection.execute("ROLLBACK")
        if WORLD.broken:
            raise ValueError("no")
        return Next.now(Plain(self.note))


@attrs.frozen
class Plain(Step):
    """Has no transaction."""

    note: str

    def run(self, context: StepContext) -> Next:
        see(context, self.note)
        with pytest.raises(TransactionError, match=r"transactional: ClassVar\[bool\] = True"):
            _ = context.connection
        return Next.done()


WRITER = Task("Writer", [Write, Plain])


@table("renamed_tasks")
class RenamedTask:
    """A table of the user's own."""

    number: int = column.id(generated=True)
    todo: dict[str, Any] = column.payload(name="what_to_do")
    due: datetime | None = column.retry_after()
    tries: int = column.attempt()
    busy: bool = column.running()
    trouble: str | None = column.error()
    held_until: datetime | None = column.lease()
    note: str | None = None


class StepsAtWorkContract(StepsBase):
    """What others see of tasks while they are worked off."""

    @pytest.fixture
    def notes(self, database: Database) -> Callable[[], list[str]]:
        database.execute(CREATE_NOTES)
        return lambda: [note for (note,) in database.execute(NOTES)]

    def test_a_task_runs_for_as_long_as_its_step_does(
        self, database: Database, broker: Broker, world: World, recorder: Recorder
    ) -> None:
        tasks = tasks_on(broker)
        id = tasks.enqueue(Slow())
        with Consumer(broker, observers=[recorder]) as consumer:
            assert world.at_work.wait(10)
            ((tried, running, lease),) = rows(database, tasks, "tried", "is_running", "locked_until")
            assert (tried, running) == (1, True)
            assert lease is not None
            stored = tasks.get(id)
            assert stored is not None
            assert (stored.state, stored.tried) == (TaskState.RUNNING, 1)
            consumer.request_stop()
            world.go_on.set()
            recorder.wait_for("advanced")
        assert rows(database, tasks, "tried", "is_running", "locked_until") == [(0, False, None)]
        stored = tasks.get(id)
        assert stored is not None
        assert (stored.name, stored.state) == ("Part", TaskState.DUE)
        assert [step for step, _, _ in world.seen] == ["Slow"]

    def test_what_a_transactional_step_wrote_commits_with_its_move(
        self, broker: Broker, world: World, notes: Callable[[], list[str]]
    ) -> None:
        """And a step beside it in the queue has no transaction."""
        tasks = tasks_on(broker, None, WRITER)
        tasks.enqueue(Write("one"))
        drain(broker)
        assert world.seen == [("Write", "one", 1), ("Plain", "one", 1)]
        assert notes() == ["one"]

    def test_what_a_transactional_step_wrote_is_undone_by_a_failure(
        self, database: Database, broker: Broker, clock: ManualClock, world: World, notes: Callable[[], list[str]]
    ) -> None:
        tasks = tasks_on(broker, clock, WRITER)
        tasks.enqueue(Write("one"))
        world.broken = True
        for _ in range(3):
            drain(broker)
            clock.advance(1)
        assert [attempt for _, _, attempt in world.seen] == [1, 2, 3]
        assert notes() == []
        assert rows(database, tasks, "tried", "is_running") == [(3, False)]
        world.broken = False
        tasks.resume()
        drain(broker)
        assert notes() == ["one"]

    def test_a_step_that_ends_its_transaction_itself_fails(
        self, database: Database, broker: Broker, clock: ManualClock, world: World, notes: Callable[[], list[str]]
    ) -> None:
        tasks = tasks_on(broker, clock, WRITER)
        tasks.enqueue(Write("ends"))
        for _ in range(3):
            drain(broker)
            clock.advance(1)
        assert notes() == []
        ((tried, error),) = rows(database, tasks, "tried", "error")
        assert tried == 3
        assert "TransactionError" in error

    def test_a_step_in_a_queue_with_transactional_ones_keeps_its_lease(
        self, database: Database, open_broker: OpenBroker, world: World, recorder: Recorder
    ) -> None:
        """Whether or not it is transactional itself: several leases long, it runs once."""
        broker = open_broker(lease=0.4)
        tasks = tasks_on(broker, None, Task("Slow", [Slow, Part]), WRITER)
        tasks.enqueue(Slow())
        with Consumer(broker, observers=[recorder]):
            assert world.at_work.wait(10)
            until, deadline = self._lease(database, tasks) + timedelta(seconds=0.8), monotonic() + LIMIT
            while self._lease(database, tasks) < until:
                assert monotonic() < deadline, "its lease is not extended"
            world.go_on.set()
            recorder.wait_for("acknowledged")
        assert [step for step, _, _ in world.seen] == ["Slow", "Part"]
        assert recorder.of("lease_lost") == []

    @staticmethod
    def _lease(database: Database, tasks: TaskQueue) -> datetime:
        ((lease,),) = rows(database, tasks, "locked_until")
        assert isinstance(lease, datetime)
        return lease

    def test_one_consumer_serves_several_queues_of_tasks_and_others(
        self, broker: Broker, world: World, database: Database
    ) -> None:
        ordinary: list[str] = []
        jobs = created(broker, Job)
        jobs.handler(lambda message: ordinary.append(message))
        greeters = TaskQueue(broker, [GREETER], workers=2)
        others = TaskQueue(broker, [OTHERS], table="other_tasks")
        broker.create_tables()
        jobs.enqueue("job")
        greeters.enqueue(Part())
        others.enqueue(Count(1))
        Consumer(broker, queues=others).run_until_idle(LIMIT)
        assert (ordinary, world.seen) == ([], [("Count", 1, 1)])
        drain(broker)
        assert ordinary == ["job"]
        assert world.seen[1:] == [("Part", None, 1)]

    def test_a_table_of_ones_own_serves_as_well(self, broker: Broker, world: World, database: Database) -> None:
        tasks = TaskQueue(broker, [GREETER, OTHERS], table=RenamedTask)
        broker.create_tables()
        id = tasks.enqueue(Read("ann"))
        assert isinstance(id, int)
        drain(broker)
        (stored,) = tasks.list()
        assert (stored.id, stored.step, stored.state) == (id, Part(), TaskState.DELAYED)
        assert shown(database, tasks.queue, "todo", "tries", "busy", "note") == [
            ({"Greeter": {"Part": None}}, 0, False, None)
        ]
        with pytest.raises(DeclarationError, match=r"adopt_after=60 needs a column updated_at"):
            TaskQueue(broker, [GREETER], table=attrs.evolve(tasks.queue.spec), adopt_after=60)

    def test_several_workers_run_each_step_once(
        self, database: Database, open_broker: OpenBroker, world: World
    ) -> None:
        broker = open_broker(pool_size=5)
        tasks = tasks_on(broker, None, GREETER, workers=4)
        tasks.enqueue_many(Read(f"n{number}") for number in range(40))
        drain(broker)
        assert sorted(held for step, held, _ in world.seen if step == "Greet") == sorted(f"N{n}" for n in range(40))
        assert len(world.seen) == 80
        assert rows(database, tasks, "is_running", "tried") == [(False, 0)] * 40

    def test_a_second_queue_on_the_table_is_refused(self, broker: Broker) -> None:
        TaskQueue(broker, [GREETER])
        with pytest.raises(DeclarationError, match=r"of the tasks Greeter already, .*; make one TaskQueue"):
            TaskQueue(broker, [OTHERS], table=task_table())

    def test_a_parked_task_is_no_one_elses_trouble(self, broker: Broker, world: World, database: Database) -> None:
        tasks = tasks_on(broker)
        tasks.enqueue(Lead("nowhere"))
        for number in range(3):
            tasks.enqueue(Count(number))
        drain(broker)
        assert sorted(held for step, held, _ in world.seen if step == "Count") == [0, 1, 2]
        assert [task.state for task in tasks.list()] == [TaskState.PARKED]
