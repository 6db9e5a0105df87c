"""Step tasks on PostgreSQL: pg_task's own table and trigger, JSONB, waking and the stop of all workers."""

import threading
from collections.abc import Iterator
from typing import ClassVar

import attrs
import pytest

from sqlqueue import Broker, Consumer, SchemaError
from sqlqueue.steps import Next, Step, StepContext, Task, TaskQueue
from sqlqueue.testing.contract.step_kinds import GREETER, OTHERS, Count, Lead, Part, Read, Slow, World, fresh_world
from tests.consumer.helpers import HOUR, LIMIT, recorded, wait_idle, wait_until
from tests.consumer.postgres_helpers import listeners
from tests.support.database import Database

# The columns, and the trigger that fires for each row, which pg_task's first migrations make.
PG_TASK = """
CREATE TABLE pg_task (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    step text NOT NULL,
    wakeup_at timestamptz NOT NULL DEFAULT now(),
    tried int NOT NULL DEFAULT 0,
    is_running boolean NOT NULL DEFAULT false,
    error text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON pg_task (wakeup_at);
CREATE FUNCTION tell_of_each_row() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('pg_task_changed', '');
    RETURN NEW;
END
$$;
CREATE TRIGGER each_row AFTER INSERT OR UPDATE ON pg_task FOR EACH ROW EXECUTE FUNCTION tell_of_each_row();
"""
ALTER = 'ALTER TABLE "pg_task" ADD COLUMN "locked_until" timestamptz'
INSERT = "INSERT INTO pg_task (step) VALUES (?)"
STOP = "SELECT pg_notify('pg_task_changed', 'stop_worker')"


@pytest.fixture(autouse=True)
def world() -> Iterator[World]:
    yield from fresh_world()


@pytest.fixture
def broker(postgres_database: Database) -> Iterator[Broker]:
    with Broker(postgres_database.url, poll_interval=HOUR) as broker:
        yield broker


def ours(broker: Broker) -> TaskQueue:
    """On the table that we recommend."""
    tasks = TaskQueue(broker, [GREETER, OTHERS])
    broker.create_tables()
    return tasks


@pytest.fixture
def theirs(postgres_database: Database, broker: Broker) -> TaskQueue:
    """On pg_task's own table, with the one column that is added."""
    postgres_database.script(PG_TASK)
    postgres_database.execute(ALTER)
    return TaskQueue(broker, [GREETER, OTHERS])


def test_the_start_on_pg_tasks_own_table_names_the_one_alter_that_is_needed(
    postgres_database: Database, broker: Broker, world: World
) -> None:
    postgres_database.script(PG_TASK)
    tasks = TaskQueue(broker, [GREETER, OTHERS])
    tasks.enqueue(Count(1))  # a producer needs nothing of it
    with pytest.raises(SchemaError) as refused:
        Consumer(broker).start()
    assert str(refused.value).endswith(f"; run: {ALTER}")
    postgres_database.execute(str(refused.value).partition("; run: ")[2])
    Consumer(broker).run_until_idle(LIMIT)
    assert world.seen == [("Count", 1, 1)]


@pytest.mark.parametrize("kind", ["jsonb", "json"])
def test_steps_are_kept_as_json_as_well(
    postgres_database: Database, broker: Broker, theirs: TaskQueue, world: World, kind: str
) -> None:
    postgres_database.execute(f"ALTER TABLE pg_task ALTER COLUMN step TYPE {kind} USING step::{kind}")
    theirs.enqueue(Read("ann"))
    theirs.enqueue_many([Read("bob")])
    postgres_database.execute(INSERT.replace("?", f"?::{kind}"), '{"Greeter": {"Greet": "x"}}')
    Consumer(broker).run_until_idle(LIMIT)
    assert sorted(held for step, held, _ in world.seen if step == "Greet") == ["ANN", "BOB", "x"]
    assert [task.step for task in theirs.list()] == [Part()] * 3
    assert postgres_database.execute("SELECT step::text::jsonb FROM pg_task LIMIT 1") == [
        ({"Greeter": {"Part": None}},)
    ]


@pytest.mark.parametrize("table", ["ours", "theirs"])
def test_another_programs_insert_and_a_cleared_error_are_heard(
    request: pytest.FixtureRequest, postgres_database: Database, broker: Broker, world: World, table: str
) -> None:
    """The poll is an hour; the channel is the table's with our triggers, and pg_task_changed with its own."""
    if table == "theirs":
        request.getfixturevalue("theirs")
    else:
        ours(broker)
    consumer, recorder = recorded(broker)
    with consumer:
        wait_until(lambda: listeners(postgres_database))
        wait_idle(recorder)
        postgres_database.execute(INSERT, '{"Others": {"Lead": "nowhere"}}')
        recorder.wait_for("parked")
        postgres_database.execute("UPDATE pg_task SET error = NULL")
        recorder.wait_for("parked", count=2)


def test_a_trigger_for_each_row_makes_no_loop_of_empty_claims(
    postgres_database: Database, theirs: TaskQueue, broker: Broker
) -> None:
    """SUITE 199: own updates wake, and are looked after once each at most."""
    consumer, recorder = recorded(broker)
    with consumer:
        wait_until(lambda: listeners(postgres_database))
        theirs.enqueue_many(Count(number) for number in range(20))
        recorder.wait_for("acknowledged", count=20)
        looked = len(recorder.of("looked"))
        theirs.enqueue(Count(20))
        recorder.wait_for("acknowledged", count=21)
        consumer.stop()
    assert looked <= 3 * 20 + 5
    assert len(recorder.of("looked")) - looked <= 8


def test_our_triggers_tell_once_a_statement_and_of_little_that_we_write(
    postgres_database: Database, broker: Broker, world: World
) -> None:
    tasks = ours(broker)
    listener = postgres_database.connect()
    listener.execute("LISTEN pg_task")
    tasks.enqueue_many(Read(f"n{number}") for number in range(50))
    Consumer(broker).run_until_idle(LIMIT)
    assert len(world.seen) == 100
    postgres_database.execute("UPDATE pg_task SET error = 'no'")
    tasks.resume()
    told = [notify.payload for notify in listener.notifies(timeout=1)]
    assert told == [""] * 3  # the insert, the error, and that it was cleared


def test_all_workers_stop_after_their_current_steps(postgres_database: Database, broker: Broker, world: World) -> None:
    tasks = ours(broker)
    tasks.enqueue(Slow())
    with Broker(postgres_database.url, poll_interval=HOUR) as another:
        TaskQueue(another, [GREETER, OTHERS])
        threads = [threading.Thread(target=Consumer(one).run_forever) for one in (broker, another)]
        for thread in threads:
            thread.start()
        assert world.at_work.wait(LIMIT)
        wait_until(lambda: len(listeners(postgres_database)) == 2)
        postgres_database.execute(STOP)
        wait_until(lambda: sum(thread.is_alive() for thread in threads) == 1)
        world.go_on.set()
        for thread in threads:
            thread.join(LIMIT)
        assert not any(thread.is_alive() for thread in threads)
    assert [task.step for task in tasks.list("due")] == [Part()]
    assert [step for step, _, _ in world.seen] == ["Slow"]


def test_nobody_listens_where_that_is_not_wanted(postgres_database: Database, broker: Broker) -> None:
    tasks = TaskQueue(broker, [GREETER, OTHERS], notify=False)
    broker.create_tables()
    assert "TRIGGER" not in tasks.ddl()
    with Consumer(broker):
        tasks.enqueue(Lead("nowhere"))
        wait_until(lambda: tasks.list("parked"))
        assert listeners(postgres_database) == []


@attrs.frozen
class Fork(Step):
    """Begins another task in the transaction of its own move."""

    transactional: ClassVar[bool] = True
    fails: bool

    def run(self, context: StepContext) -> Next:
        FORKED[0].enqueue(Part(), connection=context.connection)
        if self.fails:
            raise ValueError("no")
        return Next.done()


FORKED: list[TaskQueue] = []


def test_a_task_that_a_transactional_step_begins_commits_with_its_move(broker: Broker, world: World) -> None:
    """And wakes this consumer, whose poll is an hour."""
    FORKED[:] = [TaskQueue(broker, [Task("Forks", [Fork, Part])])]
    broker.create_tables()
    consumer, recorder = recorded(broker)
    with consumer:
        wait_idle(recorder)
        FORKED[0].enqueue(Fork(fails=True))
        recorder.wait_for("parked")
        FORKED[0].enqueue(Fork(fails=False))
        recorder.wait_for("acknowledged", count=2)
    assert world.seen == [("Part", None, 1)]
    assert [task.name for task in FORKED[0].list()] == ["Fork"]
