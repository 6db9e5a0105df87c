"""A stop claims no more, lets handlers finish and gives back what was not begun."""

import os
import threading
from queue import Empty
from typing import Any

import attrs
import pytest

from sqlqueue import Broker, BrokerClosed, Consumer, Retry, Stopped
from sqlqueue.testing import ManualClock
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, held_by
from sqlqueue.testing.contract.tables import CountedJob
from tests.consumer.helpers import LIMIT, Gate, Inbox, insert, jobs, recorded, running
from tests.support.database import Database

ROWS = "SELECT payload, attempt, locked_until FROM jobs ORDER BY id"


def rows(database: Database) -> list[tuple[Any, ...]]:
    """What is in the table: the message, the attempts, the lease."""
    return [(int(bytes(payload)), attempt, lease) for payload, attempt, lease in database.execute(ROWS)]


def stopping(consumer: Consumer) -> threading.Thread:
    """A stop that is under way in another thread."""
    thread = threading.Thread(target=consumer.stop)
    thread.start()
    return thread


def test_each_row_was_handled_once_or_is_still_there_and_free(database: Database) -> None:
    """SUITE 148"""
    gate = Gate()
    with Broker(database.url, pool_size=3) as broker:
        queue = jobs(broker)
        queue.handler(workers=2)(gate.handle)
        queue.enqueue_many(range(60))
        consumer, _ = recorded(broker)
        consumer.start()
        gate.open(3)
        ended = [gate.ended.get(timeout=LIMIT) for _ in range(3)]
        stop = stopping(consumer)
        gate.open()
        stop.join(LIMIT)
        ended += [gate.ended.get_nowait() for _ in range(gate.ended.qsize())]
        assert len(set(ended)) == len(ended)
        assert rows(database) == [(number, 0, None) for number in range(60) if number not in ended]
        with broker.pool.connection(), broker.pool.connection(), broker.pool.connection():
            pass


def test_no_claim_starts_after_the_stop_and_what_is_in_work_is_settled(database: Database) -> None:
    """SUITE 149"""
    gate = Gate()
    with Broker(database.url) as broker:
        queue = jobs(broker)
        queue.handler(workers=2)(gate.handle)
        queue.enqueue_many([1, 2, 3, 4])
        consumer, recorder = recorded(broker)
        consumer.start()
        assert sorted(gate.some(2)) == [1, 2]
        stop = stopping(consumer)
        queue.enqueue(5)
        insert(database, 6)
        gate.open()
        stop.join(LIMIT)
        assert len(recorder.of("acknowledged")) == 2
        assert gate.empty
    assert rows(database) == [(number, 0, None) for number in (3, 4, 5, 6)]


def test_a_stop_waits_for_every_handler(database: Database) -> None:
    """SUITE 151"""
    gate = Gate()
    with Broker(database.url) as broker:
        queue = jobs(broker)
        queue.handler(workers=2)(gate.handle)
        queue.enqueue_many([1, 2])
        consumer, recorder = recorded(broker)
        consumer.start()
        gate.some(2)
        stop = stopping(consumer)
        gate.open(1)
        recorder.wait_for("acknowledged")
        stop.join(0.2)
        assert stop.is_alive()
        assert consumer.health().state == "stopping"
        gate.open(1)
        stop.join(LIMIT)
        assert not stop.is_alive()
    assert rows(database) == []


def test_a_stop_settles_retries_as_well(database: Database) -> None:
    gate = Gate()

    def again(number: int) -> Retry:
        gate.handle(number, None)  # type: ignore[arg-type]
        return Retry()

    with Broker(database.url) as broker:
        queue = jobs(broker)
        queue.handler(again)
        queue.enqueue(1)
        consumer, _ = recorded(broker)
        consumer.start()
        gate.next()
        stop = stopping(consumer)
        gate.open()
        stop.join(LIMIT)
        assert gate.empty
    assert rows(database) == [(1, 1, None)]


def test_rows_claimed_ahead_go_back_with_their_attempt(database: Database) -> None:
    gate = Gate()
    with Broker(database.url) as broker:
        queue = jobs(broker)
        queue.handler(prefetch=3)(gate.handle)
        queue.enqueue_many([1, 2, 3, 4, 5])
        consumer, recorder = recorded(broker)
        consumer.start()
        recorder.wait_for("claimed", count=4)
        assert gate.next() == 1
        stop = stopping(consumer)
        recorder.wait_for("released", count=3)  # before the one in work has ended
        assert rows(database)[1:] == [(number, 0, None) for number in (2, 3, 4, 5)]
        gate.open()
        stop.join(LIMIT)
        assert consumer.stop() == Stopped(settled=1, given_back=3, abandoned=0)


def test_what_is_in_work_past_the_drain_timeout_is_given_back_and_its_late_end_changes_nothing(
    database: Database,
) -> None:
    """SUITE 152"""
    gate, other = Gate(), Inbox()
    with Broker(database.url) as broker, Broker(database.url) as fresh:
        queue = jobs(broker)
        queue.handler(gate.handle)
        queue.enqueue(1)
        consumer, recorder = recorded(broker, drain_timeout=0.1)
        consumer.start()
        gate.next()
        assert consumer.stop() == Stopped(settled=0, given_back=1, abandoned=1)
        assert rows(database) == [(1, 0, None)]
        [delivery] = gate.deliveries
        assert delivery.lost
        jobs(fresh).handler(other.handle)
        with Consumer(fresh):
            assert other.next() == 1  # while the first handler is still at work
        assert rows(database) == []
        insert(database, 2)
        gate.open()
        recorder.wait_for("lease_lost")
        assert rows(database) == [(2, 0, None)]
        assert recorder.of("acknowledged") == []


def test_a_closed_broker_enqueues_nothing(database: Database) -> None:
    """SUITE 153"""
    with Broker(database.url) as broker:
        queue = jobs(broker)
    mine = database.connect()
    for options in ({}, {"connection": mine}):
        with pytest.raises(BrokerClosed, match="jobs"):
            queue.enqueue(1, **options)
        with pytest.raises(BrokerClosed, match="jobs"):
            queue.enqueue_many([1], **options)
    assert rows(database) == []


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=["exit", "interrupt"])
def test_a_handler_that_ends_the_service_leaves_its_row_free_at_once(database: Database, error: BaseException) -> None:
    """SUITE 154"""
    begun, next_one = Inbox(), Inbox()
    with Broker(database.url) as broker, Broker(database.url) as fresh:
        queue = jobs(broker)

        @queue.handler
        def handle(number: int) -> None:
            begun.handle(number)
            raise error

        queue.enqueue(1)
        with running(Consumer(broker)) as run:
            assert run.ended()
        assert run.error is error
        assert begun.next() == 1
        assert begun.empty  # it was not delivered again by the consumer that ends
        assert rows(database) == [(1, 0, None)]
        jobs(fresh).handler(next_one.handle)
        with Consumer(fresh):
            assert next_one.next(1) == 1


def test_a_handler_that_ends_the_service_lets_the_others_finish(database: Database) -> None:
    gate = Gate()
    with Broker(database.url) as broker:
        queue = jobs(broker)

        @queue.handler(workers=2)
        def handle(number: int) -> None:
            gate.handle(number, None)  # type: ignore[arg-type]
            if number == 1:
                raise SystemExit

        queue.enqueue_many([1, 2])
        with running(Consumer(broker, drain_timeout=LIMIT)) as run:
            gate.some(2)
            gate.open()
            assert run.ended()
        assert isinstance(run.error, SystemExit)
    assert rows(database) == [(1, 0, None)]


def test_a_handler_that_ends_the_service_is_not_run_again_whoever_stops_the_consumer(database: Database) -> None:
    begun = Inbox()
    with Broker(database.url) as broker:
        queue = jobs(broker)

        @queue.handler
        def handle(number: int) -> None:
            begun.handle(number)
            raise SystemExit

        queue.enqueue_many([1, 2])
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("released")
            assert begun.next() == 1
            with pytest.raises(Empty):
                begun.next(0.3)
            assert not consumer.health().ok
    assert rows(database) == [(1, 0, None), (2, 0, None)]


@pytest.mark.parametrize("strategy", [LEASE, ADVISORY_LOCK])
def test_a_stopped_consumer_leaves_nothing_with_its_clock_or_its_broker(database: Database, strategy: str) -> None:
    clock = ManualClock()
    with Broker(database.url) as broker:
        queue = broker.queue(attrs.evolve(held_by(strategy, CountedJob), clock=clock))
        queue.handler()(Inbox().handle)
        broker.create_tables()
        for _ in range(2):
            with Consumer(broker):
                assert len(clock._callbacks) == 1
            assert clock._callbacks == []
            assert broker._served == {os.getpid(): []}
