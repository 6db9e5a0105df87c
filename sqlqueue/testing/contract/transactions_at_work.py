"""Transactional handlers side by side, in order, for longer than a lease, and at a stop."""

from collections.abc import Callable
from threading import Event, Thread
from threading import enumerate as enumerate_threads

import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.outcome import Retry
from sqlqueue.spec import spec_of
from sqlqueue.testing.contract.harness import LIMIT, Database, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import LEASE, ROW_LOCK, held_by
from sqlqueue.testing.contract.line_tables import LineJob
from sqlqueue.testing.contract.line_tables import by_row_lock as line_by_row_lock
from sqlqueue.testing.contract.tables import CountedJob, Job, KeyedJob
from sqlqueue.testing.contract.transactional import WithNotes, write
from sqlqueue.testing.recorder import Recorder


class TransactionsAtWorkContract(WithNotes):
    """What several workers write, and what becomes of it when they are interrupted."""

    def test_many_rows_on_several_workers_are_written_once_each(
        self, database: Database, open_broker: OpenBroker, strategy: str, notes: Callable[[], list[str]]
    ) -> None:
        """SUITE 117"""
        broker = open_broker(pool_size=5)
        queue = created(broker, held_by(strategy, CountedJob))
        failed: set[str] = set()

        @queue.handler(workers=3, transactional=True)
        def handle(message: str, delivery: Delivery) -> Retry | None:
            write(delivery.connection, message)
            if message.endswith("3") and message not in failed:
                failed.add(message)
                return Retry()
            return None

        queue.enqueue_many(f"n{number:02}" for number in range(30))
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("acknowledged", count=30)
        assert notes() == [f"n{number:02}" for number in range(30)]
        assert shown(database, queue, "id") == []
        with broker.pool.connection() as connection:
            assert broker.dialect.read_clock(connection).tzinfo is not None

    def test_a_lost_lease_undoes_what_the_handler_wrote(
        self, database: Database, broker: Broker, notes: Callable[[], list[str]]
    ) -> None:
        """PAINS 2"""
        queue = created(broker, Job)

        @queue.handler(transactional=True)
        def handle(message: str, delivery: Delivery) -> None:
            write(delivery.connection, message)
            name = broker.dialect.table(queue.spec)
            delivery.connection.execute(f"UPDATE {name} SET locked_until = '2999-01-01 00:00:00.000000'")  # noqa: S608

        queue.enqueue("one")
        with Consumer(broker, observers=[recorder := Recorder()]) as consumer:
            recorder.wait_for("lease_lost")
            consumer.request_stop()
        assert notes() == []
        assert len(shown(database, queue, "id")) == 1

    def test_a_handler_that_works_for_several_leases_keeps_its_row(
        self, open_broker: OpenBroker, notes: Callable[[], list[str]], database: Database
    ) -> None:
        """SUITE 21, 111: although it has its own row locked."""
        broker = open_broker(lease=0.4)
        queue = created(broker, Job)
        pause = Event()

        @queue.handler(transactional=True, workers=2)
        def handle(message: str, delivery: Delivery) -> None:
            write(delivery.connection, message)
            name = broker.dialect.table(queue.spec)
            delivery.connection.execute(f"UPDATE {name} SET payload = 'seen'")  # noqa: S608
            pause.wait(1.0)

        queue.enqueue("one")
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("acknowledged")
        assert notes() == ["one"]
        assert recorder.of("lease_lost") == []
        assert shown(database, queue, "id") == []

    def test_rows_of_a_key_keep_their_order(
        self, open_broker: OpenBroker, strategy: str, notes: Callable[[], list[str]]
    ) -> None:
        broker = open_broker(pool_size=4)
        queue = created(broker, held_by(strategy, KeyedJob))
        order: list[str] = []
        failed: list[str] = []

        @queue.handler(workers=3, by_key=True, transactional=True)
        def handle(message: str, delivery: Delivery) -> Retry | None:
            order.append(message)
            write(delivery.connection, message)
            if message == "a1" and not failed:
                failed.append(message)
                return Retry(0.05)
            return None

        for message in ("a1", "a2", "b1", "a3", "b2"):
            queue.enqueue(message, key=message[0])
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("acknowledged", count=5)
        assert [one for one in order if one[0] == "a"] == ["a1", "a1", "a2", "a3"]
        assert [one for one in order if one[0] == "b"] == ["b1", "b2"]
        assert notes() == ["a1", "a2", "a3", "b1", "b2"]

    @pytest.mark.parametrize("strategy", [LEASE, ROW_LOCK])
    def test_rows_of_a_line_keep_their_order(
        self, open_broker: OpenBroker, notes: Callable[[], list[str]], strategy: str
    ) -> None:
        """SUITE 56, PAINS 17"""
        broker = open_broker(pool_size=5)
        queue = created(broker, line_by_row_lock(LineJob) if strategy == ROW_LOCK else spec_of(LineJob))
        order: list[str] = []

        @queue.handler(workers=3, transactional=True)
        def handle(message: str, delivery: Delivery) -> Retry | None:
            order.append(message)
            write(delivery.connection, message)
            return Retry(0.05) if message == "a1" and delivery.attempt == 1 else None

        for message in ("a1", "a2", "b1", "a3", "b2"):
            queue.enqueue(message, key=message[0])
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("acknowledged", count=5)
        assert [one for one in order if one[0] == "a"] == ["a1", "a1", "a2", "a3"]
        assert [one for one in order if one[0] == "b"] == ["b1", "b2"]
        assert notes() == ["a1", "a2", "a3", "b1", "b2"]

    def test_what_is_given_back_at_a_stop_is_undone(
        self, database: Database, open_broker: OpenBroker, strategy: str, notes: Callable[[], list[str]]
    ) -> None:
        broker = open_broker()
        queue = created(broker, held_by(strategy, CountedJob))
        begun, go_on = Event(), Event()

        @queue.handler(transactional=True)
        def handle(message: str, delivery: Delivery) -> None:
            write(delivery.connection, message)
            begun.set()
            assert go_on.wait(LIMIT)

        queue.enqueue("one")
        others = set(enumerate_threads())
        consumer = Consumer(broker, drain_timeout=0.1)
        consumer.start()
        assert begun.wait(LIMIT)
        stopping = Thread(target=consumer.stop)
        stopping.start()
        stopping.join(2 * LIMIT)
        left = set(enumerate_threads()) - others
        go_on.set()
        for thread in left:
            thread.join(LIMIT)
        assert not any(thread.is_alive() for thread in left)
        broker.close()
        assert notes() == []
        assert len(shown(database, queue, "id")) == 1
