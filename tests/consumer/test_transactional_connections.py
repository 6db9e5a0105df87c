"""What a handler may do with its delivery's connection, and what becomes of one that is kept."""

import gc
import logging
import sqlite3
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import pytest

from sqlqueue import Broker, Delivery, Queue
from sqlqueue.errors import TransactionError
from sqlqueue.testing import drain
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, ROW_LOCK, held_by
from sqlqueue.testing.contract.tables import FullJob
from tests.consumer.helpers import LIMIT, recorded, wait_until
from tests.support.database import Database

NOTES = "CREATE TABLE notes (note varchar(40))"
SLEEPS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = ? AND query LIKE 'INSERT INTO notes SELECT%'"
SEATED = [LEASE, ADVISORY_LOCK]


def queue_of(broker: Broker, strategy: str) -> Queue:
    queue = broker.queue(held_by(strategy, FullJob), "mail")
    broker.create_tables()
    return queue


@pytest.mark.parametrize("strategy", SEATED)
def test_what_a_handler_kept_of_a_sqlite_connection_is_closed(sqlite_database: Database, strategy: str) -> None:
    """SUITE 113: the row is acknowledged, for nobody used what was kept."""
    kept: list[Any] = []
    with Broker(sqlite_database.url, poll_interval=60.0) as broker:
        queue = queue_of(broker, strategy)

        @queue.handler(transactional=True)
        def handle(message: Any, delivery: Delivery) -> None:
            kept.extend([delivery.connection, delivery.connection.execute("SELECT 1")])

        queue.enqueue_many(["one", "two"])
        drain(broker)
        for one in kept:
            with pytest.raises(sqlite3.ProgrammingError, match="closed"):
                one.execute("SELECT 1")
        assert kept[0] is not kept[2]
        kept.clear()  # SQLite itself closes the file when the last statement of it is gone
    assert sqlite_database.execute("SELECT count(*) FROM full_jobs WHERE done_at IS NULL") == [(0,)]


@pytest.mark.parametrize("strategy", SEATED)
def test_a_handler_that_fails_keeps_nothing_and_forces_no_garbage_collection(
    sqlite_database: Database, strategy: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """FAULTS i2: its error refers to its variables, until the row is settled. (A log that keeps errors keeps those.)"""
    caplog.set_level(logging.CRITICAL + 1, "sqlqueue")
    collections: list[Any] = []
    seen: set[int] = set()
    monkeypatch.setattr(gc, "collect", collections.append)
    with Broker(sqlite_database.url, poll_interval=60.0) as broker:
        queue = queue_of(broker, strategy)

        @queue.handler(transactional=True, max_attempts=1)
        def handle(message: Any, delivery: Delivery) -> None:
            connection, cursor = delivery.connection, delivery.connection.execute("SELECT 1")
            seen.add(id(connection))
            raise ValueError(cursor.fetchall())

        queue.enqueue_many(range(5))
        consumer, recorder = recorded(broker)
        gc.disable()
        try:
            with consumer:
                recorder.wait_for("parked", count=5)
        finally:
            gc.enable()
        assert len(seen) == 1
    assert collections == []


@pytest.mark.parametrize("strategy", SEATED)
@pytest.mark.parametrize("held", ["connection", "cursor", "attribute"])
def test_a_sqlite_connection_that_a_thread_still_uses_acknowledges_nothing(
    sqlite_database: Database, strategy: str, held: str
) -> None:
    """SUITE 113"""
    sqlite_database.execute(NOTES)
    over, began = Event(), Event()
    threads: list[Thread] = []

    def use(connection: Any) -> None:
        own = SimpleNamespace(cursor=connection) if held == "attribute" else connection
        del connection
        began.set()
        assert over.wait(LIMIT)
        del own

    with Broker(sqlite_database.url, poll_interval=60.0) as broker:
        queue = queue_of(broker, strategy)

        @queue.handler(transactional=True, retry=None)
        def handle(message: Any, delivery: Delivery) -> None:
            delivery.connection.execute("INSERT INTO notes VALUES ('late')")
            given = delivery.connection.cursor() if held == "cursor" else delivery.connection
            threads.append(Thread(target=use, args=(given,)))
            threads[0].start()
            assert began.wait(LIMIT)

        queue.enqueue("one")
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("parked")
            over.set()
            threads[0].join(LIMIT)
    ((error,),) = sqlite_database.execute("SELECT error FROM full_jobs")
    assert "a thread still uses its delivery's connection after it returned" in error
    assert sqlite_database.execute("SELECT count(*) FROM notes") == [(0,)]


@pytest.mark.parametrize("strategy", SEATED)
def test_a_write_through_another_connection_would_wait_for_its_own_handler_which_is_told_at_once(
    sqlite_database: Database, strategy: str
) -> None:
    """SUITE 107"""
    told: list[str] = []
    with Broker(sqlite_database.url) as broker:
        queue = queue_of(broker, strategy)

        @queue.handler(transactional=True)
        def handle(message: Any, delivery: Delivery) -> None:
            with pytest.raises(TransactionError) as caught:
                queue.enqueue("another")
            told.append(str(caught.value))

        queue.enqueue("one")
        drain(broker)
    assert told == [
        "the database is locked by this handler's own transaction, which a second connection would wait for: write on "
        "delivery.connection, such as enqueue(…, connection=delivery.connection)"
    ]


@pytest.mark.parametrize("strategy", SEATED)
def test_on_sqlite_nobody_else_writes_from_the_handlers_first_moment_on(
    sqlite_database: Database, strategy: str
) -> None:
    """SUITE 116"""
    sqlite_database.execute(NOTES)
    said: list[str] = []
    with Broker(sqlite_database.url) as broker:
        queue = queue_of(broker, strategy)

        @queue.handler(transactional=True)
        def handle(message: Any, delivery: Delivery) -> None:
            other = sqlite3.connect(sqlite_database.name, timeout=0)
            with pytest.raises(sqlite3.OperationalError) as caught:
                other.execute("INSERT INTO notes VALUES ('beside')")
            other.close()
            said.append(str(caught.value))

        queue.enqueue("one")
        drain(broker)
    assert said == ["database is locked"]


@pytest.mark.parametrize("strategy", [LEASE, ROW_LOCK, ADVISORY_LOCK])
def test_what_a_handler_kept_of_a_postgres_connection_is_cut_off(postgres_database: Database, strategy: str) -> None:
    """SUITE 113: the row is acknowledged, for nobody used what was kept."""
    import psycopg

    kept: list[Any] = []
    with Broker(postgres_database.url, poll_interval=60.0) as broker:
        queue = queue_of(broker, strategy)

        @queue.handler(transactional=True)
        def handle(message: Any, delivery: Delivery) -> None:
            cursor = delivery.connection.cursor()
            cursor.execute("SELECT 1")
            kept.extend([delivery.connection, cursor])

        queue.enqueue("one")
        queue.enqueue("two")
        drain(broker)
        for one in kept:
            with pytest.raises(psycopg.OperationalError, match="the connection is closed"):
                one.execute("SELECT 1")
    assert postgres_database.execute("SELECT count(*) FROM full_jobs WHERE done_at IS NULL") == [(0,)]


@pytest.mark.parametrize("strategy", [LEASE, ROW_LOCK, ADVISORY_LOCK])
def test_a_connection_that_a_thread_still_uses_acknowledges_nothing(postgres_database: Database, strategy: str) -> None:
    """SUITE 113"""
    import psycopg

    ended = Event()
    threads: list[Thread] = []
    postgres_database.execute(NOTES)

    def write_slowly(connection: Any, began: Event) -> None:
        began.set()
        with pytest.raises(psycopg.Error):
            connection.execute("INSERT INTO notes SELECT 'late' FROM pg_sleep(1)")
        ended.set()

    with Broker(postgres_database.url, poll_interval=0.2) as broker:
        queue = queue_of(broker, strategy)

        @queue.handler(transactional=True, max_attempts=None, retry=60.0)
        def handle(message: Any, delivery: Delivery) -> None:
            if threads:
                return
            began = Event()
            threads.append(Thread(target=write_slowly, args=(delivery.connection, began)))
            threads[0].start()
            assert began.wait(LIMIT)
            wait_until(delivery.connection.lock.locked)

        queue.enqueue("one")
        consumer, recorder = recorded(broker)
        with consumer:
            assert ended.wait(LIMIT)
            recorder.wait_for("retried", "lease_lost")
        threads[0].join(LIMIT)
    wait_until(lambda: postgres_database.execute(SLEEPS, postgres_database.name) == [(0,)])
    assert postgres_database.execute("SELECT count(*) FROM notes") == [(0,)]


@pytest.mark.parametrize("strategy", [LEASE, ROW_LOCK, ADVISORY_LOCK])
def test_a_write_through_another_connection_stays_when_the_delivery_is_retried(
    postgres_database: Database, strategy: str
) -> None:
    """SUITE 106"""
    postgres_database.execute(NOTES)
    with Broker(postgres_database.url, poll_interval=60.0) as broker:
        queue = queue_of(broker, strategy)

        @queue.handler(transactional=True, retry=60.0)
        def handle(message: Any, delivery: Delivery) -> None:
            delivery.connection.execute("INSERT INTO notes VALUES ('within')")
            postgres_database.execute("INSERT INTO notes VALUES ('beside')")
            raise ValueError("again")

        queue.enqueue("one")
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("retried")
    assert postgres_database.execute("SELECT note FROM notes") == [("beside",)]


@pytest.mark.parametrize("strategy", [LEASE, ROW_LOCK, ADVISORY_LOCK])
def test_the_handlers_statements_have_no_time_limit_of_ours(postgres_database: Database, strategy: str) -> None:
    limits: list[str] = []
    with Broker(postgres_database.url, statement_timeout=3.0) as broker:
        queue = queue_of(broker, strategy)

        @queue.handler(transactional=True)
        def handle(message: Any, delivery: Delivery) -> None:
            limits.extend(delivery.connection.execute("SHOW statement_timeout").fetchone())

        queue.enqueue("one")
        drain(broker)
        with broker.pool.connection() as connection:
            limits.extend(connection.driver.execute("SHOW statement_timeout").fetchone())
    assert limits == ["0", "3s"]


def test_the_connections_of_a_users_pool_go_back_as_they_came(postgres_database: Database) -> None:
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    seen: list[Any] = []
    with (
        ConnectionPool(postgres_database.url, min_size=1, max_size=2, open=True) as users,
        Broker(users) as broker,
    ):
        queue = queue_of(broker, ROW_LOCK)

        @queue.handler(transactional=True)
        def handle(message: Any, delivery: Delivery) -> None:
            delivery.connection.row_factory = dict_row
            seen.append(delivery.connection.execute("SELECT 1 AS one").fetchone())

        queue.enqueue("one")
        drain(broker)
        with users.connection() as connection:
            assert connection.execute("SELECT 1").fetchone() == (1,)
            assert not connection.autocommit
    assert seen == [{"one": 1}]


@pytest.mark.parametrize("strategy", [LEASE, ROW_LOCK, ADVISORY_LOCK])
def test_a_session_that_ends_under_its_handler_acknowledges_nothing_and_the_row_comes_again(
    postgres_database: Database, strategy: str
) -> None:
    """PAINS 25"""
    postgres_database.execute(NOTES)
    pids: list[int] = []
    with Broker(postgres_database.url, poll_interval=0.1, lease=1.0) as broker:
        queue = queue_of(broker, strategy)

        @queue.handler(transactional=True, workers=2)
        def handle(message: Any, delivery: Delivery) -> None:
            delivery.connection.execute("INSERT INTO notes VALUES ('once')")
            pids.append(delivery.connection.info.backend_pid)
            if len(pids) == 1:
                postgres_database.execute("SELECT pg_terminate_backend(?)", pids[0])

        queue.enqueue("one")
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged")
    assert len(pids) == 2
    assert postgres_database.execute("SELECT note FROM notes") == [("once",)]
