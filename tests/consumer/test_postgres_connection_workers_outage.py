"""Row lock and advisory lock: the server goes away or is locked while each row in work holds a connection."""

import threading
from collections.abc import Iterator

import pytest

from sqlqueue import Broker
from tests.consumer.helpers import HOUR, LIMIT, Gate, Inbox, insert, recorded, wait_until
from tests.consumer.postgres_helpers import terminate
from tests.consumer.tables import jobs_by
from tests.support.database import Database
from tests.support.proxy import Proxy, proxy
from tests.support.strategies import EVERY, SEATED

LEFT = "SELECT count(*) FROM jobs"

# An acknowledgement waits for a lock that the test has.
SLOW_DELETE = """
CREATE FUNCTION wait_for_the_test() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1);
    RETURN OLD;
END $$;
CREATE TRIGGER slow BEFORE DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION wait_for_the_test();
"""

# So does the claim of row 2, where it writes.
SLOW_UPDATE = """
CREATE FUNCTION wait_for_the_test() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(1);
    RETURN NEW;
END $$;
CREATE TRIGGER slow BEFORE UPDATE ON jobs FOR EACH ROW WHEN (NEW.id = 2) EXECUTE FUNCTION wait_for_the_test();
"""

# Sessions that hold a row: a pool may have ended others meanwhile.
CLAIMED = """
SELECT pid FROM pg_stat_activity AS session
WHERE application_name = ? AND query LIKE '%: claim by%' AND pid <> ? AND (
    state = 'idle in transaction' OR EXISTS (
        SELECT FROM pg_locks WHERE pg_locks.pid = session.pid AND locktype = 'advisory'
    )
)
"""

WAITS_FOR_LOCK = """
SELECT pid FROM pg_stat_activity WHERE application_name = ? AND wait_event_type = 'Lock' AND query LIKE ?
"""


@pytest.fixture
def front(postgres_database: Database) -> Iterator[Proxy]:
    with proxy(postgres_database.url) as made:
        yield made


def kinds(events: "list[object]") -> set[str]:
    return {str(getattr(event, "detail", "")).partition(":")[0] for event in events}


@pytest.mark.parametrize("strategy", SEATED)
def test_rows_in_work_when_the_server_goes_away_are_told_as_lost_and_run_again(
    postgres_database: Database, front: Proxy, strategy: str
) -> None:
    """PAINS 1 11 25: health() says so meanwhile, the threads live, and work goes on by itself."""
    gate = Gate()
    with Broker(front.url, poll_interval=0.1) as broker:
        jobs_by(strategy, broker).handler(workers=2)(gate.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            insert(postgres_database, 1, 2)
            assert sorted(gate.some(2)) == [1, 2]
            before = set(threading.enumerate())
            front.refuse()
            gate.open(2)
            recorder.wait_for("lease_lost", count=2)
            assert [delivery.lost for delivery in gate.deliveries] == [True, True]
            recorder.wait_for("trouble", count=2)
            assert kinds(list(recorder.of("trouble"))) == {"lost"}
            health = consumer.health()
            assert (health.state, health.ok, health.queues[0].in_flight) == ("running", False, 0)
            assert recorder.of("acknowledged") == []
            assert before <= set(threading.enumerate())
            front.forward()
            assert sorted(gate.some(2)) == [1, 2]
            wait_until(lambda: consumer.health().ok)
            gate.open(2)
            recorder.wait_for("acknowledged", count=2)
            assert len(recorder.of("recovered")) == 1
        assert [delivery.lost for delivery in gate.deliveries] == [True, True, False, False]
    assert postgres_database.execute(LEFT) == [(0,)]


@pytest.mark.parametrize("strategy", SEATED)
def test_a_session_that_is_terminated_loses_its_row_alone(postgres_database: Database, strategy: str) -> None:
    """PAINS 25: the others' rows are settled as ever."""
    gate = Gate()
    with Broker(postgres_database.url, poll_interval=0.1) as broker:
        queue = jobs_by(strategy, broker)
        queue.handler(workers=2)(gate.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            queue.enqueue_many([1, 2])
            gate.some(2)
            with broker.pool.connection() as own:  # the one that is free
                mine = own.driver.info.backend_pid
            pids = postgres_database.execute(CLAIMED, postgres_database.name, mine)
            terminate(postgres_database, pids[0][0])
            gate.open()
            recorder.wait_for("lease_lost")
            recorder.wait_for("acknowledged", count=2)
        assert len(gate.deliveries) == 3
        assert len(recorder.of("lease_lost")) == 1
    assert postgres_database.execute(LEFT) == [(0,)]


@pytest.mark.parametrize("strategy", EVERY)
def test_another_session_holds_the_table_and_the_claim_gives_up_at_its_own_limit(
    postgres_database: Database, strategy: str
) -> None:
    """PAINS 12"""
    inbox = Inbox()
    with Broker(postgres_database.url, poll_interval=0.1, statement_timeout=0.3) as broker:
        jobs_by(strategy, broker).handler(workers=2)(inbox.handle)
        consumer, recorder = recorded(broker)
        psql = postgres_database.connect()
        with consumer:
            insert(postgres_database, 1)
            assert inbox.next() == 1
            recorder.wait_for("acknowledged")
            psql.execute("BEGIN; LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE")
            recorder.wait_for("trouble", count=2)
            assert kinds(list(recorder.of("trouble"))) == {"transient"}
            assert not consumer.health().ok
            psql.execute("INSERT INTO jobs (payload, attempt) VALUES ('2', 0)")
            psql.execute("COMMIT")
            assert inbox.next() == 2
            recorder.wait_for("recovered")
            recorder.wait_for("acknowledged", count=2)
            assert consumer.health().ok
    assert postgres_database.execute(LEFT) == [(0,)]


@pytest.mark.parametrize("strategy", SEATED)
def test_an_acknowledgement_that_meets_a_lock_is_tried_again(postgres_database: Database, strategy: str) -> None:
    """PAINS 12: it gives up at its own limit as well, while the row stays held."""
    inbox = Inbox()
    with Broker(postgres_database.url, poll_interval=0.1, statement_timeout=0.3) as broker:
        jobs_by(strategy, broker).handler(inbox.handle)
        postgres_database.script(SLOW_DELETE)
        consumer, recorder = recorded(broker)
        psql = postgres_database.connect()
        psql.execute("SELECT pg_advisory_lock(1)")
        with consumer:
            insert(postgres_database, 1)
            assert inbox.next() == 1
            waits = (WAITS_FOR_LOCK, postgres_database.name, "%acknowledge%")
            [(pid,)] = wait_until(lambda: postgres_database.execute(*waits))
            postgres_database.execute("SELECT pg_cancel_backend(?)", pid)
            psql.execute("SELECT pg_advisory_unlock(1)")
            recorder.wait_for("acknowledged")
            assert len(recorder.of("started")) == 1
            assert consumer.health().queues[0].in_flight == 0
    assert postgres_database.execute(LEFT) == [(0,)]


def test_a_claim_that_fails_behind_an_acknowledgement_leaves_it_done(postgres_database: Database) -> None:
    """Both go in one round trip; the claim's lock on the key goes with its connection."""
    gate = Gate()
    with Broker(postgres_database.url, poll_interval=0.1, statement_timeout=0.3) as broker:
        jobs_by("advisory", broker).handler(gate.handle)
        postgres_database.script(SLOW_UPDATE)
        consumer, recorder = recorded(broker)
        psql = postgres_database.connect()
        psql.execute("SELECT pg_advisory_lock(1)")
        insert(postgres_database, 1, 2)
        with consumer:
            assert gate.next() == 1
            gate.open(1)
            recorder.wait_for("acknowledged")
            recorder.wait_for("trouble")
            assert kinds(list(recorder.of("trouble"))) == {"transient"}
            assert postgres_database.execute("SELECT id FROM jobs") == [(2,)]
            psql.execute("SELECT pg_advisory_unlock(1)")
            gate.open(1)
            assert gate.next() == 2
            recorder.wait_for("acknowledged", count=2)
        assert recorder.of("lease_lost") == []
        assert [delivery.attempt for delivery in gate.deliveries] == [1, 1]
    assert postgres_database.execute(LEFT) == [(0,)]


def test_a_row_whose_settlement_and_new_lock_both_fail_returns_to_the_queue(postgres_database: Database) -> None:
    """A row lock ends with the settlement that failed, and then somebody has the whole table."""
    inbox = Inbox()
    with Broker(postgres_database.url, poll_interval=0.1, statement_timeout=0.3) as broker:
        jobs_by("row", broker).handler(inbox.handle)
        postgres_database.script(SLOW_DELETE)
        consumer, recorder = recorded(broker)
        psql, other = postgres_database.connect(), postgres_database.connect()
        psql.execute("SELECT pg_advisory_lock(1)")
        with consumer:
            insert(postgres_database, 1)
            assert inbox.next() == 1
            taking = threading.Thread(target=other.execute, args=("BEGIN; LOCK TABLE jobs IN ACCESS EXCLUSIVE MODE",))
            taking.start()  # waits for the row's transaction
            recorder.wait_for("lease_lost", timeout=2 * LIMIT)
            taking.join()
            assert consumer.health().queues[0].in_flight == 0
            psql.execute("SELECT pg_advisory_unlock(1)")
            other.execute("ROLLBACK")
            assert inbox.next() == 1
            recorder.wait_for("acknowledged")
    assert postgres_database.execute(LEFT) == [(0,)]


@pytest.mark.parametrize("strategy", SEATED)
def test_a_stop_while_the_server_is_away_ends_in_time(postgres_database: Database, front: Proxy, strategy: str) -> None:
    gate = Gate()
    with Broker(front.url, poll_interval=0.1) as broker:
        queue = jobs_by(strategy, broker)
        queue.handler(workers=2)(gate.handle)
        queue.enqueue_many([1, 2])
        consumer, recorder = recorded(broker, drain_timeout=0.5)
        consumer.start()
        gate.some(2)
        front.refuse()
        gate.open(1)  # the other is still at work
        recorder.wait_for("trouble")
        stop = threading.Thread(target=consumer.stop)
        stop.start()
        stop.join(5)
        assert not stop.is_alive()
        assert consumer.health().queues[0].in_flight == 0
        gate.open(1)
        front.forward()


@pytest.mark.parametrize("strategy", SEATED)
def test_an_idle_consumer_that_lost_its_connections_runs_a_new_row_soon(
    postgres_database: Database, front: Proxy, strategy: str
) -> None:
    inbox = Inbox()
    with Broker(front.url, poll_interval=HOUR) as broker:
        queue = jobs_by(strategy, broker)
        queue.handler(workers=2)(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("looked")
            for number in range(3):
                front.cut()
                insert(postgres_database, number)
                broker.wake(queue)
                assert inbox.next(2.0) == number
                recorder.wait_for("acknowledged", count=number + 1)  # else the next cut meets it in work
