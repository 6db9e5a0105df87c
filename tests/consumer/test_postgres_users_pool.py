"""A pool of the user's own: whatever its settings, it works, and its connections go back as they came."""

from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row, tuple_row
from psycopg_pool import ConnectionPool, PoolClosed

from sqlqueue import Broker, BrokerClosed, Consumer, Delivery, PoolTooSmall, Retry
from sqlqueue.dialect import Trouble
from tests.consumer.helpers import HOUR, LIMIT, Gate, Inbox, Job, insert, jobs, recorded, running, wait_until
from tests.consumer.postgres_helpers import listening
from tests.support.database import Database

SETTINGS = {
    "datestyle": "German, DMY",
    "timezone": "Asia/Tokyo",
    "bytea_output": "escape",
    "default_transaction_isolation": "serializable",
    "statement_timeout": "97s",
    "standard_conforming_strings": "off",
    "extra_float_digits": "-3",
    "client_encoding": "LATIN1",
    "plan_cache_mode": "force_custom_plan",
    "synchronous_commit": "local",
}

# Those of plpgsql are there once a trigger has run.
ALL_SETTINGS = "SELECT name, setting FROM pg_settings WHERE name NOT LIKE 'plpgsql.%'"

Driver = psycopg.Connection[Any]


def make_odd(connection: Driver) -> None:
    for name, value in SETTINGS.items():
        connection.execute("SELECT set_config(%s, %s, false)", [name, value])
    connection.commit()


def how_it_is(connection: Driver) -> dict[str, Any]:
    found = {
        "status": connection.info.transaction_status,
        "autocommit": connection.autocommit,
        "row factory": connection.row_factory,
        "isolation": connection.isolation_level,
    }
    with connection.cursor(row_factory=tuple_row) as cursor:
        found |= dict(cursor.execute(ALL_SETTINGS).fetchall())
    connection.rollback()
    return found


@pytest.mark.parametrize("autocommit", [False, True])
def test_a_pool_with_odd_settings_works_and_its_connections_go_back_as_they_came(
    postgres_database: Database, autocommit: bool
) -> None:
    inbox = Inbox()
    before: dict[int, dict[str, Any]] = {}
    with Broker(postgres_database.url, notify=True) as migrations:
        jobs(migrations)
    with (
        ConnectionPool(
            postgres_database.url,
            connection_class=Driver,
            kwargs={"row_factory": dict_row, "autocommit": autocommit},
            configure=make_odd,
            min_size=3,
            max_size=3,
            open=True,
        ) as pool,
        Broker(pool, poll_interval=0.05, notify=True, lease=0.4) as broker,
    ):
        lent = [pool.getconn() for _ in range(3)]
        for one in lent:
            before[one.info.backend_pid] = how_it_is(one)
            pool.putconn(one)
        queue = broker.queue(Job)

        @queue.handler(workers=2, max_attempts=3)
        def handle(number: int, delivery: Delivery) -> Retry | None:
            inbox.handle(number)
            if number == 1:
                return Retry(0.1) if delivery.attempt == 1 else None
            if number == 2:
                raise ValueError("ü")
            return None

        consumer, recorder = recorded(broker)
        with consumer:
            assert queue.enqueue(1) == 1
            queue.enqueue(2, delay=0.1)
            assert queue.enqueue_many([3, 4]) == 2
            recorder.wait_for("acknowledged", count=3)
            recorder.wait_for("retried", count=2)
        postgres_database.execute("UPDATE jobs SET attempt = 2, retry_after = NULL")
        consumer.run_until_idle(LIMIT)
        [(attempt, lease, error)] = postgres_database.execute("SELECT attempt, locked_until, error FROM jobs")
        assert (attempt, lease) == (3, None)
        assert "ValueError" in error
        lent = [pool.getconn() for _ in range(3)]
        after = {one.info.backend_pid: how_it_is(one) for one in lent}
        for one in lent:
            pool.putconn(one)
    assert after == before
    assert {one["status"] for one in after.values()} == {TransactionStatus.IDLE}


def test_connections_that_a_claim_failed_on_go_back_as_they_came(postgres_database: Database) -> None:
    with (
        ConnectionPool(postgres_database.url, min_size=1, max_size=1, open=True) as pool,
        Broker(pool, poll_interval=0.05, statement_timeout=0.1) as broker,
    ):
        jobs(broker).handler(Inbox().handle)
        consumer, recorder = recorded(broker)
        psql = postgres_database.connect()
        with consumer:
            recorder.wait_for("looked")
            psql.execute("BEGIN; LOCK TABLE jobs")
            recorder.wait_for("trouble", count=2)
            psql.execute("ROLLBACK")
            recorder.wait_for("recovered")
        with pool.connection() as connection:
            assert (connection.autocommit, connection.info.transaction_status) == (False, TransactionStatus.IDLE)
            assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)


def test_a_pool_of_one_cannot_lend_a_listener(postgres_database: Database) -> None:
    """SUITE 141"""
    with (
        ConnectionPool(postgres_database.url, min_size=1, max_size=1, open=True) as pool,
        Broker(pool, notify=True) as broker,
    ):
        jobs(broker).handler(Inbox().handle)
        with pytest.raises(PoolTooSmall, match=r"the pool has 1; it needs 2"):
            Consumer(broker).start()


@pytest.mark.parametrize("notify", [False, True])
def test_the_smallest_pool_works_and_stops_on_request(postgres_database: Database, notify: bool) -> None:
    """SUITE 141"""
    inbox = Inbox()
    size = 2 if notify else 1
    with (
        ConnectionPool(postgres_database.url, min_size=size, max_size=size, timeout=0.5, open=True) as pool,
        Broker(pool, poll_interval=0.05, notify=notify) as broker,
    ):
        queue = jobs(broker)
        queue.handler(workers=3)(inbox.handle)
        with running(Consumer(broker)) as run:
            if notify:
                listening(postgres_database)
            queue.enqueue_many(range(20))
            assert sorted(inbox.some(20)) == list(range(20))
            run.consumer.request_stop()
            assert run.ended(2)
        assert run.error is None
        wait_until(lambda: pool.get_stats()["pool_available"] == size)


def test_a_pool_without_a_listener_may_be_of_one(postgres_database: Database) -> None:
    """SUITE 141: the listener of a URL's broker has a connection of its own."""
    inbox = Inbox()
    with Broker(postgres_database.url, pool_size=1, poll_interval=HOUR, notify=True) as broker:
        jobs(broker).handler(inbox.handle)
        consumer, _ = recorded(broker)
        with consumer:
            listening(postgres_database)
            insert(postgres_database, 1)
            assert inbox.next() == 1


def test_a_pool_that_is_not_open_is_refused_with_the_mend(postgres_database: Database) -> None:
    pool = ConnectionPool(postgres_database.url, open=False)
    with Broker(pool) as broker:
        broker.queue(Job).handler(Inbox().handle)
        with pytest.raises(PoolClosed, match="call its open"):
            Consumer(broker).start()


@pytest.mark.parametrize("notify", [False, True])
def test_a_pool_closed_by_its_owner_ends_the_run_with_an_error(postgres_database: Database, notify: bool) -> None:
    """SUITE 147: when it is noticed, and the handlers in work have ended."""
    gate = Gate()
    with (
        ConnectionPool(postgres_database.url, min_size=3, max_size=3, open=True) as pool,
        Broker(pool, poll_interval=0.05, notify=notify) as broker,
    ):
        queue = jobs(broker)
        queue.handler(workers=2)(gate.handle)
        queue.enqueue(1)
        with running(Consumer(broker, drain_timeout=LIMIT)) as run:
            gate.next()
            pool.close()
            wait_until(lambda: run.consumer.health().state == "stopping")
            assert not run.ended(0.2)
            gate.open()
            assert run.ended()
        assert broker.dialect.classify(run.error or KeyError()) is Trouble.CLOSED
        assert not run.consumer.health().ok


def test_a_closed_broker_writes_nothing_though_the_users_pool_is_open(postgres_database: Database) -> None:
    """SUITE 153"""
    with ConnectionPool(postgres_database.url, min_size=1, open=True) as pool:
        with Broker(pool) as broker:
            queue = jobs(broker)
        assert not pool.closed
        with pytest.raises(BrokerClosed):
            queue.enqueue(1)
        with pool.connection() as connection, pytest.raises(BrokerClosed):
            queue.enqueue(1, connection=connection)
        with pytest.raises(BrokerClosed):
            queue.enqueue_many([1])
    assert postgres_database.execute("SELECT count(*) FROM jobs") == [(0,)]
