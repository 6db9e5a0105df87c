"""Locks that another system keeps, whose functions fail: what was settled stays settled, and the rest goes on."""

from threading import Lock
from typing import Any

from sqlqueue import AdvisoryLock, Broker, Queue, column, table
from tests.consumer.helpers import Inbox, recorded
from tests.support.database import Database


class Keeper:
    """Another system's locks. `failing`: calls of a function that are to fail, counted from 1."""

    def __init__(self, **failing: int) -> None:
        self.held: set[str] = set()
        self._failing, self._calls, self._lock = failing, {"lock": 0, "unlock": 0}, Lock()

    def lock(self, _: Any, key: str) -> bool:
        with self._lock:
            self._count("lock")
            free = key not in self.held
            self.held.add(key)
            return free

    def unlock(self, _: Any, key: str) -> bool:
        with self._lock:
            self._count("unlock")
            self.held.remove(key)
            return True

    def _count(self, name: str) -> None:
        self._calls[name] += 1
        if self._calls[name] == self._failing.get(name):
            raise ConnectionError(f"the locks' keeper is away: {name}")


def queue_of(broker: Broker, keeper: Keeper) -> Queue:
    @table("jobs", advisory_lock=AdvisoryLock("jobs-{id}", lock=keeper.lock, unlock=keeper.unlock))
    class FunctionJob:
        id: int = column.id(generated=True)
        attempt: int = column.attempt()
        payload: bytes = column.payload()

    queue = broker.queue(FunctionJob)
    broker.create_tables()
    return queue


def test_a_row_is_settled_though_its_lock_is_not_let_go(database: Database) -> None:
    inbox, keeper = Inbox(), Keeper(unlock=1)
    with Broker(database.url, poll_interval=0.05) as broker:
        queue = queue_of(broker, keeper)
        queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            queue.enqueue_many([1, 2])
            assert inbox.some(2) == [1, 2]
            recorder.wait_for("acknowledged", count=2)
            recorder.wait_for("recovered")
            assert consumer.health().queues[0].in_flight == 0
        assert len(recorder.of("trouble")) == 1
        assert recorder.of("lease_lost") == []
    assert keeper.held == {"jobs:jobs-1"}  # the other system's to end
    assert database.execute("SELECT count(*) FROM jobs") == [(0,)]


def test_a_lock_that_cannot_be_tried_is_trouble_and_tried_again(database: Database) -> None:
    inbox, keeper = Inbox(), Keeper(lock=1)
    with Broker(database.url, poll_interval=0.05) as broker:
        queue = queue_of(broker, keeper)
        queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            queue.enqueue(1)
            assert inbox.next() == 1
            recorder.wait_for("acknowledged")
        assert len(recorder.of("trouble")) == 1
    assert keeper.held == set()
