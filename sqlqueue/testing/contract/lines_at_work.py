"""FIFO lines under consumers: the handlers' own order."""

import threading
from collections import defaultdict
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.outcome import Retry
from sqlqueue.queue import Queue
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import LIMIT, Database, OpenBroker, created, shown
from sqlqueue.testing.contract.line_instances import ByRowLock, Declare, OnLines
from sqlqueue.testing.contract.line_tables import LineJob
from sqlqueue.testing.recorder import Recorder

BY_KEY = pytest.mark.parametrize("by_key", [False, True], ids=["", "by key"])


class Log:
    """What handlers did: the messages of each key in order, and how many of a key were in work at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running: dict[Any, int] = defaultdict(int)
        self.together: dict[Any, int] = defaultdict(int)
        self.handled: dict[Any, list[int]] = defaultdict(list)

    def handle(self, message: int, delivery: Delivery) -> None:
        with self._lock:  # one line of the log
            self.running[delivery.key] += 1
            self.together[delivery.key] = max(self.together[delivery.key], self.running[delivery.key])
            self.handled[delivery.key].append(message)
        with self._lock:
            self.running[delivery.key] -= 1


class LinesAtWorkContract(OnLines):
    """One row of a line is handled at a time, in order, and other lines go on beside it."""

    @BY_KEY
    def test_two_brokers_handle_each_row_once_and_each_line_in_order(
        self, database: Database, open_broker: OpenBroker, recorder: Recorder, declare: Declare, by_key: bool
    ) -> None:
        log, queues = Log(), []
        for _ in range(2):
            queue = created(open_broker(poll_interval=0.05), declare(LineJob))
            queue.handler(workers=3, prefetch=2, by_key=by_key)(log.handle)
            queues.append(queue)
        keys = ["a", "b", "c", None]
        for number in range(60):
            queues[0].enqueue(number, key=keys[number % 4])
        one, other = (Consumer(queue.broker, observers=[recorder]) for queue in queues)
        with one, other:
            recorder.wait_for("acknowledged", count=60)
        for at, key in enumerate(keys[:3]):
            assert log.handled[key] == list(range(at, 60, 4))
            assert log.together[key] == 1
        assert sorted(log.handled[None]) == list(range(3, 60, 4))
        assert shown(database, queues[0], "id") == []

    @BY_KEY
    def test_a_row_that_fails_comes_again_before_the_rows_behind_it(
        self, broker: Broker, clock: ManualClock, recorder: Recorder, declare: Declare, by_key: bool
    ) -> None:
        """SUITE 59, PAINS 17"""
        queue = created(broker, declare(LineJob), clock)
        order: list[int] = []

        @queue.handler(workers=3, prefetch=2, by_key=by_key)
        def work(message: int, delivery: Delivery) -> None:
            order.append(message)
            if message == 1 and delivery.attempt is not None and delivery.attempt < 3:
                raise Retry(60)

        for number in (1, 2, 3):
            queue.enqueue(number, key="a")
        with Consumer(broker, observers=[recorder]):
            for tries in (1, 2):
                recorder.wait_for("retried", count=tries)
                clock.advance(59)
                recorder.wait_for("looked", count=len(recorder.of("looked")) + 1)
                assert order == [1] * tries
                clock.advance(1)
            recorder.wait_for("acknowledged", count=3)
        assert order == [1, 1, 1, 2, 3]

    def test_a_front_whose_attempts_are_spent_is_parked_and_the_next_row_is_handled(
        self, database: Database, broker: Broker, clock: ManualClock, recorder: Recorder, declare: Declare
    ) -> None:
        """SUITE 66"""
        queue = created(broker, declare(LineJob), clock)
        order: list[int] = []

        @queue.handler(max_attempts=1)
        def work(message: int) -> None:
            order.append(message)
            if message == 1:
                raise ValueError("broken")

        for number in (1, 2):
            queue.enqueue(number, key="a")
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("parked")
            recorder.wait_for("acknowledged")
        assert order == [1, 2]
        ((_, error),) = shown(database, queue, "id", "error")
        assert "broken" in error

    def test_a_slow_line_keeps_no_other_waiting(
        self, broker: Broker, clock: ManualClock, recorder: Recorder, declare: Declare
    ) -> None:
        """PAINS 16"""
        queue = created(broker, declare(LineJob), clock)
        others = threading.Event()
        slow = _blocking(queue, others)
        for number in range(20):
            queue.enqueue(number, key="slow")
        for number in range(20, 40):
            queue.enqueue(number, key=f"k{number % 3}" if number % 2 else None)
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("acknowledged", count=20)
            assert slow == [0]
            others.set()
            recorder.wait_for("acknowledged", count=40)
        assert slow == list(range(20))


def _blocking(queue: Queue, until: threading.Event) -> list[int]:
    """Registers a handler whose rows of the key "slow" wait for the event; those of them that began."""
    began: list[int] = []

    @queue.handler(workers=2, prefetch=1)
    def work(message: int, delivery: Delivery) -> None:
        if delivery.key == "slow":
            began.append(message)
            assert until.wait(LIMIT)

    return began


class RowLockLinesAtWorkContract(ByRowLock, LinesAtWorkContract):
    """The same by row lock: for dialects whose capabilities say `row_locks`."""
