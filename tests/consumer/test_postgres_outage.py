"""The server goes away, comes late, falls silent or is locked: the consumer lives, says so, and works on by itself."""

import threading
from collections.abc import Iterator

import pytest
from psycopg_pool import ConnectionPool

from sqlqueue import Broker, Consumer
from sqlqueue_postgres import pool
from tests.consumer.helpers import HOUR, LIMIT, Gate, Inbox, Job, Mail, insert, jobs, recorded, wait_until
from tests.consumer.postgres_helpers import listening, terminate
from tests.support.database import Database
from tests.support.proxy import Proxy, proxy

BACKENDS = """
SELECT pid FROM pg_stat_activity WHERE application_name = ? AND pid <> pg_backend_pid() AND query LIKE '%jobs%'
"""

SOON = 2.0  # seconds


@pytest.fixture
def front(postgres_database: Database) -> Iterator[Proxy]:
    with proxy(postgres_database.url) as made:
        yield made


def test_the_server_is_away_for_a_while_and_everything_lives(
    postgres_database: Database, front: Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    """PAINS 11: the threads live, health() says so meanwhile, and work goes on by itself."""
    gate = Gate()
    with Broker(front.url, poll_interval=0.1, lease=8) as broker:
        queue = jobs(broker)
        queue.handler(workers=2)(gate.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            insert(postgres_database, 1)
            assert gate.next() == 1
            before = set(threading.enumerate())
            front.refuse()
            [event] = recorder.wait_for("trouble")[:1]
            assert str(event.detail).startswith("lost")
            health = consumer.health()
            assert (health.state, health.ok) == ("running", False)
            assert str(health.queues[0].trouble).startswith("lost")
            gate.open(1)  # its settlement waits for the server
            assert gate.ended.get(timeout=LIMIT) == 1
            recorder.wait_for("trouble", count=4)
            assert recorder.of("acknowledged") == []
            assert before <= set(threading.enumerate())
            insert(postgres_database, 2)
            front.forward()
            gate.open()
            assert gate.next() == 2
            recorder.wait_for("acknowledged", count=2)
            assert consumer.health().ok
    assert postgres_database.execute("SELECT count(*) FROM jobs") == [(0,)]
    told = [record.getMessage() for record in caplog.records if record.name == "sqlqueue"]
    assert len([text for text in told if "the server or the connection is gone" in text]) == 1
    assert len([text for text in told if "works again" in text]) == 1


def test_after_an_outage_work_goes_on_within_the_pause_between_tries(postgres_database: Database, front: Proxy) -> None:
    """PAINS 11: the pause has grown to some seconds at most, and the pool adds none of its own."""
    inbox = Inbox()
    with Broker(front.url, poll_interval=0.1) as broker:
        jobs(broker).handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("looked")
            front.refuse()
            recorder.wait_for("trouble", count=6)  # three seconds or more
            insert(postgres_database, 1)
            front.forward()
            assert inbox.next(5.5) == 1


def test_an_idle_consumer_that_lost_everything_runs_a_new_row_soon(postgres_database: Database, front: Proxy) -> None:
    """PAINS 7 9: the listener and the claims' connection at once. A claim that is under way then may take the row for
    nobody, so the lease is short."""
    inbox = Inbox()
    with Broker(front.url, poll_interval=HOUR, notify=True, lease=1.0) as broker:
        jobs(broker).handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("looked")
            listening(postgres_database)
            for number in range(3):
                front.cut()
                insert(postgres_database, number)
                assert inbox.next(SOON) == number


@pytest.mark.parametrize("transactional", [False, True])
def test_a_claim_whose_answer_is_lost_is_made_again_when_its_lease_ends(
    postgres_database: Database, front: Proxy, transactional: bool
) -> None:
    """However long the poll is: the rows that it took for nobody show no other moment."""
    inbox = Inbox()
    with Broker(front.url, poll_interval=HOUR, lease=1.0) as broker:
        queue = jobs(broker)
        queue.handler(transactional=transactional)(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            for looks in range(1, 4):  # its statements are prepared then
                recorder.wait_for("looked", count=looks)
                broker.wake(queue)
            recorder.wait_for("looked", count=4)
            front.swallow_answers()
            insert(postgres_database, 7)
            broker.wake(queue)
            wait_until(lambda: postgres_database.execute("SELECT id FROM jobs WHERE locked_until IS NOT NULL"))
            front.cut()
            assert inbox.next() == 7


def test_a_claims_backend_that_is_terminated_is_replaced(postgres_database: Database) -> None:
    """SUITE 144"""
    inbox = Inbox()
    with Broker(postgres_database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            for number in range(3):
                for (pid,) in postgres_database.execute(BACKENDS, postgres_database.name):
                    terminate(postgres_database, pid)
                insert(postgres_database, number)
                broker.wake(queue)
                assert inbox.next() == number
            recorder.wait_for("acknowledged", count=3)


def test_a_claim_that_is_terminated_in_its_middle_is_tried_again(postgres_database: Database) -> None:
    """SUITE 144: SQLSTATE 57P01"""
    inbox = Inbox()
    with Broker(postgres_database.url, poll_interval=0.1) as broker:
        jobs(broker).handler(inbox.handle)
        consumer, recorder = recorded(broker)
        psql = postgres_database.connect()
        with consumer:
            recorder.wait_for("looked")
            insert(postgres_database, 1)
            psql.execute("BEGIN; LOCK TABLE jobs")
            waiting = f"{BACKENDS} AND wait_event_type = 'Lock'"
            [(pid,)] = wait_until(lambda: postgres_database.execute(waiting, postgres_database.name))
            terminate(postgres_database, pid)
            [event] = recorder.wait_for("trouble")[:1]
            assert str(event.detail).startswith("lost")
            psql.execute("ROLLBACK")
            assert inbox.next() == 1
            recorder.wait_for("recovered")


def test_a_settlement_is_tried_again_while_its_lease_lasts(postgres_database: Database, front: Proxy) -> None:
    gate = Gate()
    with Broker(front.url, poll_interval=HOUR, lease=20) as broker:
        queue = jobs(broker)
        queue.handler(gate.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            queue.enqueue(1)
            gate.next()
            front.refuse()
            gate.open()
            recorder.wait_for("trouble", count=2)
            front.forward()
            recorder.wait_for("acknowledged")
        assert len(gate.deliveries) == 1
    assert postgres_database.execute("SELECT count(*) FROM jobs") == [(0,)]


def test_a_stop_while_the_server_is_away_ends_in_time(postgres_database: Database, front: Proxy) -> None:
    gate = Gate()
    with Broker(front.url, poll_interval=0.1) as broker:
        queue = jobs(broker)
        queue.handler(gate.handle)
        queue.enqueue(1)
        consumer, recorder = recorded(broker, drain_timeout=0.5)
        consumer.start()
        gate.next()
        front.refuse()
        gate.open()
        recorder.wait_for("trouble")
        stop = threading.Thread(target=consumer.stop)
        stop.start()
        stop.join(5)
        assert not stop.is_alive()
        front.forward()


def test_another_session_holds_the_table_and_the_claim_gives_up_at_its_own_limit(
    postgres_database: Database,
) -> None:
    """PAINS 12"""
    inbox = Inbox()
    with Broker(postgres_database.url, poll_interval=0.1, statement_timeout=0.3) as broker:
        jobs(broker).handler(inbox.handle)
        consumer, recorder = recorded(broker)
        psql = postgres_database.connect()
        with consumer:
            recorder.wait_for("looked")
            insert(postgres_database, 1)
            assert inbox.next() == 1
            recorder.wait_for("acknowledged")
            psql.execute("BEGIN; LOCK TABLE jobs")
            troubles = recorder.wait_for("trouble", count=2)
            assert [str(event.detail).partition(":")[0] for event in troubles[:2]] == ["transient"] * 2
            assert not consumer.health().ok
            psql.execute("INSERT INTO jobs (payload) VALUES ('2')")
            psql.execute("COMMIT")
            assert inbox.next() == 2
            recorder.wait_for("recovered")
            assert consumer.health().ok


def test_a_permanent_fault_shows_in_health_and_is_over_when_it_is_mended(postgres_database: Database) -> None:
    inbox = Inbox()
    with Broker(postgres_database.url, poll_interval=0.05) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("looked")
            postgres_database.execute("ALTER TABLE jobs RENAME TO gone")
            recorder.wait_for("trouble", count=2)
            assert str(consumer.health().queues[0].trouble).startswith("permanent")
            postgres_database.execute("ALTER TABLE gone RENAME TO jobs")
            insert(postgres_database, 1)
            assert inbox.next() == 1
            recorder.wait_for("recovered")


def test_one_queues_trouble_is_no_other_queues(postgres_database: Database) -> None:
    inbox = Inbox()
    with Broker(postgres_database.url, poll_interval=0.05) as broker:
        work, mails = broker.queue(Job), broker.queue(Mail)
        broker.create_tables()
        work.handler(Inbox().handle)
        mails.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("looked", count=2)
            postgres_database.execute("DROP TABLE jobs")
            recorder.wait_for("trouble")
            mails.enqueue(Mail(group="a", locked_until=None, payload=b"1"))
            assert inbox.next() == 1
            assert [queue.ok for queue in consumer.health().queues] == [False, True]


def test_a_peer_that_fell_silent_is_noticed(
    postgres_database: Database, front: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PAINS 8: what it takes vanishes, and neither TCP nor the server's own limit tells."""
    monkeypatch.setattr(pool, "GRACE", 0.5)
    inbox = Inbox()
    with Broker(f"{front.url}&connect_timeout=2", poll_interval=0.1, statement_timeout=0.5) as broker:
        jobs(broker).handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("looked")
            front.swallow()
            [event] = recorder.wait_for("trouble")[:1]
            assert "did not answer within 1 s" in str(event.detail)
            insert(postgres_database, 1)
            front.forward()
            assert inbox.next() == 1


def test_behind_the_users_own_pool_it_is_the_same(postgres_database: Database, front: Proxy) -> None:
    """PAINS 11: it is told as a lost server, though the pool says only that it has nothing to lend."""
    inbox = Inbox()
    with (
        ConnectionPool(front.url, min_size=1, max_size=2, open=True) as pool,
        Broker(pool, poll_interval=0.1) as broker,
    ):
        jobs(broker).handler(lease=0.8)(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("looked")
            front.refuse()
            troubles = recorder.wait_for("trouble", count=3)
            assert {str(event.detail).partition(":")[0] for event in troubles} == {"lost"}
            insert(postgres_database, 1)
            front.forward()
            assert inbox.next() == 1  # when their pool has tried again
            recorder.wait_for("recovered")


def test_a_server_that_comes_late_is_waited_for(postgres_database: Database, caplog: pytest.LogCaptureFixture) -> None:
    inbox = Inbox()
    with Broker(postgres_database.url) as migrations:
        jobs(migrations)
    with proxy(postgres_database.url, refusing=True) as front, Broker(front.url, poll_interval=HOUR) as broker:
        queue = broker.queue(Job)
        queue.handler(inbox.handle)
        consumer = Consumer(broker, startup_timeout=LIMIT)
        start = threading.Thread(target=consumer.start)
        start.start()
        wait_until(lambda: [r for r in caplog.records if "waiting for it" in r.getMessage()])
        assert consumer.health().state == "starting"
        front.forward()
        start.join(LIMIT)
        assert consumer.health().ok
        queue.enqueue(1)
        assert inbox.next() == 1
        consumer.stop()
