"""The pool's budget: what deliveries that hold a connection leave to others, and to whom."""

import threading
from contextlib import ExitStack
from typing import Any

import pytest

from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.errors import PoolTooSmall
from sqlqueue.outcome import Retry
from sqlqueue.queue import Queue
from sqlqueue.testing.contract.harness import LIMIT, Contract, Database, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import LEASE, held_by
from sqlqueue.testing.contract.tables import CountedJob, Job
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder


class Gate:
    """A handler that keeps each row in work until somebody lets one go."""

    def __init__(self) -> None:
        self._passes = threading.Semaphore(0)

    def handle(self, message: Any) -> None:
        assert self._passes.acquire(timeout=LIMIT)

    def let_go(self, count: int) -> None:
        self._passes.release(count)


def _started(queue: Queue, recorder: Recorder, count: int) -> None:
    """Wait until so many rows of the queue have been at work."""
    recorder.wait_for("started", count=count, where=lambda event: event.queue == queue.name)


class PoolContract(Contract):
    """A consumer holds no more of the pool's connections than all but one, and shares them among its queues."""

    def test_deliveries_that_never_end_leave_the_pool_a_connection_to_lend(
        self, open_broker: OpenBroker, strategy: str, recorder: Recorder
    ) -> None:
        """SUITE 138: 16 rows, a pool of 8. One settlement makes room for one claim."""
        broker, gate = open_broker(pool_size=8), Gate()
        queue = created(broker, held_by(strategy, Job))
        queue.handler(workers=16)(gate.handle)
        queue.enqueue_many(range(16))
        most = 16 if strategy == LEASE else 7
        with Consumer(broker, observers=[recorder]) as consumer:
            _started(queue, recorder, most)
            with ExitStack() as lent:
                for _ in range(8 if strategy == LEASE else 1):
                    lent.enter_context(broker.pool.connection(LIMIT))
            assert consumer.health().queues[0].in_flight == most
            if strategy != LEASE:
                gate.let_go(1)
                _started(queue, recorder, most + 1)
                recorder.wait_for("acknowledged")
                assert (len(recorder.of("started")), consumer.health().queues[0].in_flight) == (most + 1, most)
            gate.let_go(16)
            recorder.wait_for("acknowledged", count=16)

    def test_a_lease_is_served_although_other_deliveries_hold_all_that_they_may(
        self, open_broker: OpenBroker, seated: str, recorder: Recorder
    ) -> None:
        """Two queues on one budget: neither starves the other."""
        broker, gate = open_broker(pool_size=4), Gate()
        holding, leased = created(broker, held_by(seated, Job)), created(broker, CountedJob)
        holding.handler(workers=4)(gate.handle)
        handled: list[int] = []
        leased.handler(workers=4)(handled.append)
        holding.enqueue_many(range(6))
        with Consumer(broker, observers=[recorder]):
            _started(holding, recorder, 2)  # all that they may hold: one is for statements, and one stays free
            leased.enqueue_many(range(20))
            recorder.wait_for("acknowledged", count=20)
            assert len(recorder.of("started", queue=holding.name)) == 2
            gate.let_go(6)
            recorder.wait_for("acknowledged", count=26)
        assert sorted(handled) == list(range(20))

    def test_of_two_queues_whose_deliveries_hold_connections_one_that_never_ends_leaves_the_other_its_turn(
        self, open_broker: OpenBroker, seated: str, recorder: Recorder
    ) -> None:
        """SPEC 6: a seat that is done gives its connection up where somebody else waits for one."""
        broker, over = open_broker(pool_size=3), threading.Event()
        busy, other = created(broker, held_by(seated, CountedJob)), created(broker, held_by(seated, Job))

        @busy.handler(workers=4)
        def work(message: Any) -> Retry | None:
            return None if over.is_set() else Retry()

        handled: list[int] = []
        other.handler(workers=4)(handled.append)
        busy.enqueue_many(range(8))
        with Consumer(broker, observers=[recorder]):
            try:
                _started(busy, recorder, 8)
                for number in range(5):
                    other.enqueue(number)
                recorder.wait_for("acknowledged", count=5, where=lambda event: event.queue == other.name)
            finally:
                over.set()
            recorder.wait_for("acknowledged", count=13)
        assert sorted(handled) == list(range(5))

    def test_a_pool_of_one_is_refused_where_a_delivery_holds_a_connection_and_the_error_names_what_is_needed(
        self, open_broker: OpenBroker, seated: str
    ) -> None:
        """SUITE 139"""
        broker = open_broker(pool_size=1)
        created(broker, held_by(seated, Job)).handler(lambda message: None)
        with pytest.raises(PoolTooSmall, match=r"queue jobs: .* pool has 1 and needs 2"):
            Consumer(broker).start()

    def test_a_pool_of_two_works_and_more_workers_than_it_serves_are_warned_of_once(
        self, database: Database, open_broker: OpenBroker, seated: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """SUITE 139: fewer deliveries run at once, and nothing fails."""
        broker = open_broker(pool_size=2)
        queue = created(broker, held_by(seated, Job))
        lock, running, together = threading.Lock(), [0], []

        @queue.handler(workers=4)
        def work(message: Any, delivery: Delivery) -> None:
            with lock:
                running[0] += 1
                together.append(running[0])
            with broker.pool.connection(LIMIT):  # the one that stays free
                pass
            with lock:
                running[0] -= 1

        queue.enqueue_many(range(10))
        drain(broker)
        assert together == [1] * 10
        assert shown(database, queue, "id") == []
        assert [line for line in caplog.messages if "pool_size" in line] == [
            "queue jobs: each row in work holds a connection, and the pool of 2 leaves 1 for that, so 1 of its 4 "
            "workers run at once; raise pool_size"
        ]

    def test_a_run_ends_with_an_error_when_its_pool_is_closed(
        self, open_broker: OpenBroker, seated: str, recorder: Recorder
    ) -> None:
        """SUITE 147"""
        broker = open_broker()
        queue = created(broker, held_by(seated, Job))
        queue.handler(lambda message: None)
        consumer = Consumer(broker, observers=[recorder])
        raised: list[BaseException] = []

        def run() -> None:
            try:
                consumer.run_forever()
            except Exception as error:  # noqa: BLE001 - whatever ends the run
                raised.append(error)

        running = threading.Thread(target=run)
        running.start()
        recorder.wait_for("looked")
        broker.close()
        running.join(LIMIT)
        assert (running.is_alive(), ["closed" in str(error) for error in raised]) == (False, [True])
