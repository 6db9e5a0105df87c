"""The consumer lives with the pool it gets: small, busy, shared or closed."""

from contextlib import ExitStack

import pytest

from sqlqueue import Broker, BrokerClosed, Consumer, DeclarationError
from sqlqueue.dialect import Trouble
from sqlqueue.testing import Recorder
from tests.consumer.helpers import HOUR, Gate, Inbox, Job, Mail, insert, jobs, recorded, running
from tests.support.database import Database


def test_a_lease_takes_more_rows_than_the_pool_has_connections(database: Database) -> None:
    """SUITE 138: sixteen in work or claimed ahead, a pool of eight, and all eight can be lent."""
    gate = Gate()
    with Broker(database.url, pool_size=8, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(workers=12, prefetch=4)(gate.handle)
        queue.enqueue_many(range(16))
        consumer, recorder = recorded(broker)
        with consumer:
            gate.some(12)
            recorder.wait_for("claimed", count=16)
            with ExitStack() as lent:
                for _ in range(8):
                    lent.enter_context(broker.pool.connection())
            gate.open()
            recorder.wait_for("acknowledged", count=16)


def test_a_pool_of_one_serves_many_workers(database: Database) -> None:
    """SUITE 139"""
    gate = Gate()
    with Broker(database.url, pool_size=1, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(workers=4)(gate.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            for number in range(8):
                queue.enqueue(number)  # by the one connection there is
            gate.some(4)
            gate.open()
            recorder.wait_for("acknowledged", count=8)


def test_a_pool_of_none_is_refused() -> None:
    with pytest.raises(DeclarationError, match="pool_size is 0"):
        Broker("sqlite://", pool_size=0)


def test_a_handler_enqueues_while_all_workers_are_busy_on_a_pool_of_one(database: Database) -> None:
    done = Inbox()
    with Broker(database.url, pool_size=1, poll_interval=HOUR) as broker:
        queue, mails = broker.queue(Job), broker.queue(Mail, group="a")
        broker.create_tables()
        mails.handler(done.handle)

        @queue.handler(workers=4)
        def forward(number: int) -> None:
            mails.enqueue(number)

        consumer, _ = recorded(broker)
        with consumer:
            queue.enqueue_many(range(20))
            assert sorted(done.some(20)) == list(range(20))


def test_a_pool_with_nothing_to_lend_is_trouble_that_passes_and_no_lost_server(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    """SUITE 142"""
    inbox = Inbox()
    with Broker(database.url, pool_size=2, poll_interval=0.05) as broker:
        queue = jobs(broker)
        queue.handler(lease=0.8)(inbox.handle)  # the claim waits for an eighth of it
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("looked")
            with broker.pool.connection(), broker.pool.connection() as connection:
                queue.enqueue(1, connection=connection.driver)
                event = recorder.wait_for("trouble")[0]
                assert str(event.detail).startswith("exhausted")
                assert not consumer.health().ok
                assert str(consumer.health().queues[0].trouble).startswith("exhausted")
            assert inbox.next() == 1
            recorder.wait_for("recovered")
            assert consumer.health().ok
    told = [record.getMessage() for record in caplog.records if record.name == "sqlqueue"]
    [loss] = [text for text in told if "the pool had no connection to lend in time" in text]
    assert len([text for text in told if "works again" in text]) == 1
    assert "gone" not in loss


def test_failed_claims_are_tried_less_and_less_often(database: Database) -> None:
    """SUITE 146"""
    with Broker(database.url, pool_size=1, poll_interval=0.01) as broker:
        jobs(broker).handler(lease=0.4)(Inbox().handle)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("looked")
            with broker.pool.connection():
                insert(database, 1)
                recorder.wait_for("trouble", count=3)
                with pytest.raises(AssertionError):  # 0.05 s for the pool and 0.2 s or more for the pause
                    recorder.wait_for("trouble", count=8, timeout=1)
            recorder.wait_for("recovered")


#: What keeps every claim waiting while another program holds it.
KEEP_OUT = {
    "sqlite": "BEGIN IMMEDIATE",
    "postgres": "BEGIN; LOCK TABLE jobs, mails",
}


def test_consumers_on_one_broker_leave_a_connection_to_everybody_else(database: Database) -> None:
    """SUITE 138: three of them hold two at most, for however long."""
    inbox = Inbox()
    with Broker(database.url, pool_size=3, poll_interval=0.01) as broker:
        work, mails = broker.queue(Job), broker.queue(Mail, group="a")
        broker.create_tables()
        for queue in (work, mails):
            queue.handler(lease=0.8)(inbox.handle)  # they wait a tenth of a second for a connection
        psql = database.connect()
        recorder = Recorder()
        with ExitStack() as until_end:
            for _ in range(3):
                until_end.enter_context(Consumer(broker, observers=[recorder]))
            psql.execute(KEEP_OUT[database.kind])
            for queue in (work, mails):
                broker.wake(queue)
            recorder.wait_for("trouble", count=4)  # of six
            for _ in range(20):
                with broker.pool.connection(0.5):
                    pass
            psql.execute("ROLLBACK")
            work.enqueue(1)
            mails.enqueue(2)
            assert sorted(inbox.some(2)) == [1, 2]


def test_a_broker_closed_under_an_idle_consumer_ends_its_run_with_an_error(database: Database) -> None:
    """SUITE 147"""
    with Broker(database.url, poll_interval=HOUR) as broker:
        jobs(broker).handler(Inbox().handle)
        consumer, recorder = recorded(broker)
        with running(consumer) as run:
            recorder.wait_for("looked")
            broker.close()
            assert run.ended()
        assert run.error is not None
        assert broker.dialect.classify(run.error) is Trouble.CLOSED


def test_a_broker_closed_under_a_consumer_at_work_ends_the_run_when_its_handlers_have(database: Database) -> None:
    """SUITE 147"""
    gate = Gate()
    with Broker(database.url, poll_interval=0.05) as broker:
        queue = jobs(broker)
        queue.handler(gate.handle)
        queue.enqueue(1)
        consumer, recorder = recorded(broker)
        with running(consumer) as run:
            gate.next()
            broker.close()
            gate.open()
            assert run.ended()
        assert run.error is not None
        assert broker.dialect.classify(run.error) is Trouble.CLOSED
        assert recorder.of("acknowledged") == []


def test_a_closed_brokers_consumer_does_not_start(database: Database) -> None:
    with Broker(database.url) as broker:
        jobs(broker).handler(Inbox().handle)
    with pytest.raises(BrokerClosed):
        Consumer(broker).start()
