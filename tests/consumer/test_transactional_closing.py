"""A delivery whose connection is closed under it is settled on another one of the pool, however its row was held."""

from threading import Lock
from typing import Any

import pytest

from sqlqueue import AdvisoryLock, Broker, Delivery, Queue
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, ROW_LOCK, held_by
from sqlqueue.testing.contract.tables import FullJob
from tests.consumer.helpers import recorded
from tests.support.database import Database

STRATEGIES = [LEASE, ROW_LOCK, ADVISORY_LOCK]
ADVISORY_LOCKS = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = ?"
OWN_OID = "SELECT oid FROM pg_database WHERE datname = current_database()"


class Keeper:
    """Another system's locks, which know no connections and no owners."""

    def __init__(self) -> None:
        self.held: set[str] = set()
        self._lock = Lock()

    def lock(self, _: Any, key: str) -> bool:
        with self._lock:
            free = key not in self.held
            self.held.add(key)
            return free

    def unlock(self, _: Any, key: str) -> bool:
        with self._lock:
            self.held.remove(key)
            return True


def parked(broker: Broker, queue: Queue) -> list[int | None]:
    """The attempts of a row whose handler closes its connection each time, until it is parked."""
    attempts: list[int | None] = []

    @queue.handler(transactional=True, max_attempts=2, retry=0.01)
    def handle(message: Any, delivery: Delivery) -> None:
        attempts.append(delivery.attempt)
        delivery.connection.close()

    queue.enqueue("one")
    consumer, recorder = recorded(broker)
    with consumer:
        recorder.wait_for("parked")
    assert recorder.of("lease_lost", "trouble") == []
    return attempts


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_on_a_users_pool(postgres_database: Database, strategy: str) -> None:
    from psycopg_pool import ConnectionPool

    with ConnectionPool(postgres_database.url, min_size=1, max_size=2, open=True) as users, Broker(users) as broker:
        queue = broker.queue(held_by(strategy, FullJob), "mail")
        broker.create_tables()
        assert parked(broker, queue) == [1, 2]


def test_by_locks_that_another_system_keeps(database: Database) -> None:
    keeper = Keeper()
    with Broker(database.url) as broker:
        lock = AdvisoryLock("jobs-{id}", lock=keeper.lock, unlock=keeper.unlock)
        queue = broker.queue(held_by(ADVISORY_LOCK, FullJob, lock), "mail")
        broker.create_tables()
        assert parked(broker, queue) == [1, 2]
    assert keeper.held == set()


def test_by_the_users_functions_that_lock_for_the_connection(postgres_database: Database) -> None:
    def said(connection: Any, function: str, key: str) -> bool:
        return bool(connection.execute(f"SELECT {function}(hashtext(%s))", (key,)).fetchone()[0])

    lock = AdvisoryLock(
        "jobs-{id}",
        lock=lambda connection, key: said(connection, "pg_try_advisory_lock", key),
        unlock=lambda connection, key: said(connection, "pg_advisory_unlock", key),
    )
    [(oid,)] = postgres_database.execute(OWN_OID)
    with Broker(postgres_database.url) as broker:
        queue = broker.queue(held_by(ADVISORY_LOCK, FullJob, lock), "mail")
        broker.create_tables()
        assert parked(broker, queue) == [1, 2]
        assert postgres_database.execute(ADVISORY_LOCKS, oid) == [(0,)]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_session_that_ends_under_its_handler_counts_as_its_failure(
    postgres_database: Database, strategy: str
) -> None:
    attempts: list[int | None] = []
    with Broker(postgres_database.url) as broker:
        queue = broker.queue(held_by(strategy, FullJob), "mail")
        broker.create_tables()

        @queue.handler(transactional=True, max_attempts=2, retry=0.01)
        def handle(message: Any, delivery: Delivery) -> None:
            attempts.append(delivery.attempt)
            delivery.connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

        queue.enqueue("one")
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("parked")
    assert attempts == [1, 2]
    assert recorder.of("lease_lost", "trouble") == []
    [(error,)] = postgres_database.execute("SELECT error FROM full_jobs")
    assert "AdminShutdown" in error


@pytest.mark.parametrize("strategy", [ROW_LOCK, ADVISORY_LOCK])
def test_a_row_that_somebody_else_has_begun_meanwhile_is_left_to_him(
    postgres_database: Database, strategy: str
) -> None:
    attempts: list[int | None] = []
    with Broker(postgres_database.url) as broker:
        queue = broker.queue(held_by(strategy, FullJob), "mail")
        broker.create_tables()

        @queue.handler(transactional=True, retry=60.0)
        def handle(message: Any, delivery: Delivery) -> None:
            attempts.append(delivery.attempt)
            if len(attempts) == 1:
                delivery.connection.close()
                postgres_database.execute("UPDATE full_jobs SET attempt = 7")

        queue.enqueue("one")
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged")
        assert len(recorder.of("lease_lost")) == 1
    assert attempts == [1, 8]
