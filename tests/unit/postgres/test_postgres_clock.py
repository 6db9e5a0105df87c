"""The server's clock: rows that are due by it, on every sort of connection."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from sqlqueue import Broker, DatabaseClock, Queue, column, table
from sqlqueue_postgres.fuse import fuse
from tests.support.database import Database

# All rows, and those that fell due in the last minute.
FILLED = "SELECT count(*), count(*) FILTER (WHERE due BETWEEN now() - interval '1 minute' AND now()) FROM jobs"
ZONE = "SET TimeZone = 'Europe/Berlin'"
CLOCK = "SELECT clock_timestamp()"
DUE = "SELECT due FROM jobs"


@table("jobs", clock=DatabaseClock())
class Job:
    id: int = column.id(generated=True)
    due: datetime = column.retry_after()
    payload: str = column.payload()


@contextmanager
def queue_of(source: Any, **settings: Any) -> Iterator[Queue]:
    with Broker(source, **settings) as broker:
        queue = broker.queue(Job)
        broker.create_tables()
        yield queue


@pytest.fixture
def queue(postgres_database: Database) -> Iterator[Queue]:
    with queue_of(postgres_database.url) as queue:
        yield queue


@pytest.fixture
def driver(postgres_database: Database) -> Iterator["psycopg.Connection[Any]"]:
    """A connection of the caller's as psycopg makes it."""
    with psycopg.connect(postgres_database.url) as driver:
        yield driver


def test_rows_are_due_by_the_server_within_the_callers_pipeline(
    postgres_database: Database, queue: Queue, driver: "psycopg.Connection[Any]"
) -> None:
    with driver.pipeline():
        queue.enqueue("x", connection=driver)
        assert queue.enqueue_many(["y", "z"], connection=driver) == 2
    assert postgres_database.execute("SELECT count(*) FROM jobs") == [(0,)]
    driver.commit()
    assert postgres_database.execute(FILLED) == [(3, 3)]


def test_many_rows_in_a_transaction_that_failed_are_the_drivers_error(
    queue: Queue, driver: "psycopg.Connection[Any]"
) -> None:
    with pytest.raises(psycopg.errors.UndefinedColumn):
        driver.execute("SELECT nonsense")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        queue.enqueue_many(["x"], connection=driver)


def test_rows_are_due_by_the_server_in_a_pool_of_the_users(postgres_database: Database) -> None:
    with ConnectionPool(postgres_database.url, open=True) as pool, queue_of(pool) as queue:
        queue.enqueue("x")
        assert queue.enqueue_many(["y", "z"]) == 2
    assert postgres_database.execute(FILLED) == [(3, 3)]


def test_a_notification_and_the_insert_are_one_statement_still(postgres_database: Database) -> None:
    with queue_of(postgres_database.url, notify=True) as queue:
        for delay in (None, 0, 0.5):
            queue.enqueue("x", delay=delay)
        (notify,) = queue.broker.notifications(queue)
        fused = fuse((queue._rows.single, notify.statement), True)
    assert fused is not None
    assert fused.serves
    assert postgres_database.execute("SELECT count(*) FROM jobs") == [(3,)]


def test_a_delay_is_seconds_whatever_the_zone_of_the_session(queue: Queue, driver: "psycopg.Connection[Any]") -> None:
    """A year of days holds two that are no 24 hours long."""
    year = timedelta(days=365)
    driver.execute(ZONE)
    (before,) = driver.execute(CLOCK).fetchone() or (None,)
    for delay in (year / 2, year):
        queue.enqueue("x", delay=delay, connection=driver)
    (after,) = driver.execute(CLOCK).fetchone() or (None,)
    dues = [due.astimezone(timezone.utc) for (due,) in driver.execute(DUE).fetchall()]
    assert [before <= due - delay <= after for due, delay in zip(dues, (year / 2, year), strict=True)] == [True, True]
