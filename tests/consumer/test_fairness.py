"""Rows that fail, cannot be read or wait for their key keep no others from being handled."""

import threading
from datetime import datetime
from time import monotonic
from typing import Any

import pytest

from sqlqueue import Broker, Delivery, Queue, Retry, column, table
from tests.consumer.helpers import HOUR, INSERT, Inbox, jobs, recorded
from tests.support.database import Database


@table("errands")
class Errand:
    id: int = column.id(generated=True)
    key: str = column.partition_key()
    retry_after: datetime | None = column.retry_after()
    attempt: int = column.attempt()
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()
    error: str | None = column.error()


@table("errands")
class PlainErrand:
    """Without a `retry_after`: a row waits by its lease."""

    id: int = column.id(generated=True)
    key: str = column.partition_key()
    attempt: int = column.attempt()
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()
    error: str | None = column.error()


tables = pytest.mark.parametrize("declared", [Errand, PlainErrand], ids=["retry_after", "no retry_after"])


def errands(broker: Broker, declared: type) -> Queue:
    queue = broker.queue(declared)
    broker.create_tables()
    return queue


@tables
@pytest.mark.parametrize("workers", [1, 2])
def test_rows_that_are_due_again_at_once_do_not_starve_those_behind_them(
    database: Database, declared: type, workers: int
) -> None:
    """PAINS 19"""
    served = threading.Semaphore(0)
    over = threading.Event()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = errands(broker, declared)

        @queue.handler(workers=workers)
        def handle(number: int) -> None:
            if number > 0:
                served.release()
            elif not over.is_set():
                raise Retry

        for number in (-4, -3, -2, -1, 1, 2, 3, 4, 5, 6):
            queue.enqueue(number, key=str(number))
        consumer, recorder = recorded(broker)
        with consumer:
            try:
                assert all(served.acquire(timeout=5) for _ in range(6))
            finally:
                over.set()
            recorder.wait_for("acknowledged", count=10)


def test_nine_of_ten_claimed_rows_run_when_the_tenth_cannot_be_read(database: Database) -> None:
    """PAINS 5: it is parked with the reason, and its handler never sees it."""
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        jobs(broker).handler(workers=10, prefetch=0)(inbox.handle)
        for number in range(10):
            database.execute(INSERT, b"no JSON" if number == 4 else str(number).encode())
        consumer, recorder = recorded(broker)
        with consumer:
            assert sorted(inbox.some(9)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
            recorder.wait_for("acknowledged", count=9)
            [parked] = recorder.wait_for("parked")
            assert parked.id == 5
    [(id, error, lease)] = database.execute("SELECT id, error, locked_until FROM jobs")
    assert (id, lease) == (5, None)
    assert "DecodeError" in error
    assert inbox.empty


class Log:
    """What was begun, and when; the first delivery of each of `failing` fails."""

    def __init__(self, *failing: str) -> None:
        self._failing = failing
        self.begun: list[tuple[str, float]] = []

    def handle(self, name: str, delivery: Delivery) -> None:
        self.begun.append((name, monotonic()))
        if name in self._failing and delivery.attempt == 1:
            raise ValueError("its first attempt fails")

    def of(self, key: str) -> list[str]:
        return [name for name, _ in self.begun if name.startswith(key)]

    def moments(self, name: str) -> list[float]:
        return [moment for begun, moment in self.begun if begun == name]


NAMES = ("a1", "a2", "b1", "a3", "b2", "c1", "c2")


@tables
def test_a_failed_row_holds_the_later_rows_of_its_key_for_its_whole_delay_and_no_others(
    database: Database, declared: type
) -> None:
    """PAINS 17, SPEC 6: other keys go on meanwhile."""
    delay = 0.7
    log = Log("a1", "c1")
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = errands(broker, declared)
        queue.handler(workers=4, by_key=True, retry=lambda *_: delay)(log.handle)
        for name in NAMES:
            queue.enqueue(name, key=name[0])
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged", count=len(NAMES))
    assert log.of("a") == ["a1", "a1", "a2", "a3"]
    assert log.of("b") == ["b1", "b2"]
    assert log.of("c") == ["c1", "c1", "c2"]
    for failed in ("a1", "c1"):
        first, second = log.moments(failed)
        assert second - first >= delay
        assert log.moments("b2")[0] < second


@tables
def test_a_row_given_up_lets_the_rest_of_its_key_go_on(database: Database, declared: type) -> None:
    log = Log("a1")
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = errands(broker, declared)
        queue.handler(workers=2, by_key=True, retry=None)(log.handle)
        for name in ("a1", "a2", "a3"):
            queue.enqueue(name, key="a")
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged", count=2)
    assert log.of("a") == ["a1", "a2", "a3"]
    rows: list[tuple[Any, ...]] = database.execute("SELECT id, attempt FROM errands WHERE error IS NOT NULL")
    assert rows == [(1, 1)]
