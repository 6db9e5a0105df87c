"""A writer elsewhere holds SQLite's lock for longer than a lease: what is in work meanwhile stays in its hands."""

import threading
from collections.abc import Callable, Iterator

import pytest

from sqlqueue import Broker, Consumer
from sqlqueue.steps import Task, TaskQueue
from sqlqueue.testing import Recorder
from sqlqueue.testing.contract.step_kinds import WORLD, Part, Slow, World, fresh_world
from sqlqueue.testing.contract.steps_at_work import WRITER
from tests.consumer.helpers import LIMIT, Job
from tests.support.database import Database

LEASE = 1.0
POLL = 0.3


def job(broker: Broker) -> Callable[[], object]:
    """A handler that waits to be told to go on; how its row is enqueued."""
    queue = broker.queue(Job)

    @queue.handler(lease=LEASE, poll_interval=POLL)
    def handle(message: int) -> None:
        WORLD.seen.append(("job", message, 1))
        WORLD.at_work.set()
        assert WORLD.go_on.wait(LIMIT)

    broker.create_tables()
    return lambda: queue.enqueue(1)


def step(broker: Broker) -> Callable[[], object]:
    """The same by a step without a transaction, beside transactional ones."""
    tasks = TaskQueue(broker, [Task("Slow", [Slow, Part]), WRITER], lease=LEASE, poll_interval=POLL)
    broker.create_tables()
    return lambda: tasks.enqueue(Slow())


@pytest.fixture(autouse=True)
def world() -> Iterator[World]:
    yield from fresh_world()


@pytest.mark.parametrize("work", [job, step])
def test_a_row_in_work_is_not_taken_over_behind_a_writer_that_outlasts_its_lease(
    sqlite_database: Database, work: Callable[[Broker], Callable[[], object]]
) -> None:
    """The extension that waited writes an expiry that has passed, and is followed by another at once."""
    recorder, writer = Recorder(), sqlite_database.connect()
    with Broker(sqlite_database.url) as broker, Broker(sqlite_database.url) as another:
        enqueue = work(broker)
        work(another)
        with Consumer(broker, observers=[recorder]):
            enqueue()
            assert WORLD.at_work.wait(LIMIT)
            recorder.wait_for("extended")
            writer.execute("BEGIN IMMEDIATE")
            threading.Event().wait(1.6 * LEASE)  # no wait for anything: it is the writer's time
            extended = len(recorder.of("extended"))
            writer.execute("COMMIT")
            recorder.wait_for("extended", count=extended + 1)  # the one that waited
            with Consumer(another, observers=[recorder]):  # either may run the step that follows
                recorder.wait_for("extended", count=extended + 4)
                WORLD.go_on.set()
                recorder.wait_for("acknowledged")
    assert [name for name, _, _ in WORLD.seen if name != "Part"] == ["job" if work is job else "Slow"]
    assert recorder.of("lease_lost") == []
