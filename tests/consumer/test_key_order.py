"""The rows of one key run in claim order, one at a time, and a failed one holds the later ones of its key alone."""

import threading
from datetime import datetime

from sqlqueue import Broker, Delivery, Queue, column, table
from tests.consumer.helpers import HOUR, recorded
from tests.support.database import Database


@table("errands")
class Errand:
    id: int = column.id(generated=True)
    key: str = column.partition_key()
    attempt: int = column.attempt()
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()


class Log:
    """What was begun, by key; the first delivery of number 0 fails."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self.begun: dict[str, list[int]] = {"a": [], "b": []}
        self.overlaps = 0

    def handle(self, number: int, delivery: Delivery) -> None:
        with self._lock:
            self.overlaps += delivery.key in self._running
            self._running.add(delivery.key)
            self.begun[delivery.key].append(number)
        try:
            if number == 0 and delivery.attempt == 1:
                raise ValueError("its first attempt fails")
        finally:
            with self._lock:
                self._running.discard(delivery.key)


def enqueue(queue: Queue, key: str, *numbers: int) -> None:
    queue.enqueue_many([Errand(key=key, payload=str(number).encode()) for number in numbers])


def test_the_rows_behind_a_failed_one_run_in_claim_order_once_it_is_done(database: Database) -> None:
    """SPEC 6"""
    log = Log()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = broker.queue(Errand)
        broker.create_tables()
        queue.handler(workers=3, by_key=True, retry=0.3)(log.handle)
        enqueue(queue, "a", *range(60))
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged", count=60, timeout=20)
    assert log.begun["a"] == [0, *range(60)]
    assert log.overlaps == 0


def test_a_row_enqueued_while_a_failed_one_waits_runs_behind_the_older_rows_of_its_key(database: Database) -> None:
    """SPEC 6"""
    log = Log()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = broker.queue(Errand)
        broker.create_tables()
        queue.handler(workers=3, by_key=True, retry=0.3)(log.handle)
        enqueue(queue, "a", *range(10))
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("retried")
            enqueue(queue, "a", 10)
            recorder.wait_for("started", count=2)
            enqueue(queue, "a", 11, 12)
            recorder.wait_for("acknowledged", count=13, timeout=20)
    assert log.begun["a"] == [0, *range(13)]


def test_a_long_line_behind_a_failed_row_keeps_no_other_key_waiting_and_goes_on_itself(database: Database) -> None:
    """PAINS 16, 19: the line is longer than what a consumer could claim and give back in a second."""
    rows = 1500
    log = Log()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = broker.queue(Errand)
        broker.create_tables()
        queue.handler(workers=2, by_key=True, retry=0.3)(log.handle)
        enqueue(queue, "a", *range(rows))
        enqueue(queue, "b", -1)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged", where=lambda event: event.id == rows + 1, timeout=3)
            recorder.wait_for("acknowledged", count=rows + 1, timeout=20)
    assert log.begun == {"a": [0, *range(rows)], "b": [-1]}
