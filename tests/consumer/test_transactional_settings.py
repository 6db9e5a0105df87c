"""What a handler changes of its delivery's session or connection is its own: others have it as it came."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest

from sqlqueue import Broker, Delivery, column, table
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, ROW_LOCK, held_by
from sqlqueue.testing.contract.tables import FullJob, NamedJob
from tests.consumer.helpers import recorded
from tests.support.database import Database

STRATEGIES = [LEASE, ROW_LOCK, ADVISORY_LOCK]
POOLS = ["own", "users"]
#: Each of them has our settlement meet another table of the same name, or one that it may not touch.
CHANGES = {
    "path, local": "SET LOCAL search_path TO {tenant}",
    "path": "SET search_path TO {tenant}",
    "role, local": "SET LOCAL ROLE pg_monitor",
    "role": "SET ROLE pg_monitor",
    "both": "SELECT set_config('search_path', '{tenant}', false), set_config('role', 'pg_monitor', false)",
}
TENANT = """
CREATE SCHEMA {tenant};
GRANT ALL ON SCHEMA {tenant} TO pg_monitor;
CREATE TABLE {tenant}.full_jobs (LIKE full_jobs INCLUDING ALL);
INSERT INTO {tenant}.full_jobs (queue_name, priority, attempt, payload, is_running)
SELECT 'mail', 0, 0, '"theirs"', false FROM generate_series(1, 9);
CREATE TABLE effects (message text)
"""
OURS = "SELECT count(*) FROM full_jobs WHERE done_at IS NOT NULL AND error IS NULL"
UNTOUCHED = "SELECT count(*) FROM {tenant}.full_jobs WHERE done_at IS NULL AND attempt = 0 AND due_at IS NULL"
EFFECTS = "SELECT message FROM effects ORDER BY message"
STANDING = "SELECT current_setting('search_path'), current_setting('role')"


@attrs.frozen
class Tenant:
    """Another schema that has a table of the queue's name, with rows of its own; made once the queue's is there."""

    database: Database

    @property
    def name(self) -> str:
        return f"{self.database.name}_tenant"

    def made(self) -> None:
        self.database.script(TENANT.format(tenant=self.name))

    @property
    def untouched(self) -> bool:
        return self.database.execute(UNTOUCHED.format(tenant=self.name)) == [(9,)]


@pytest.fixture
def tenant(postgres_database: Database) -> Iterator[Tenant]:
    tenant = Tenant(postgres_database)
    yield tenant
    postgres_database.execute(f"DROP SCHEMA IF EXISTS {tenant.name} CASCADE")


#: What psycopg lets a program set on a connection.
OF_A_CONNECTION = (
    *("row_factory", "cursor_factory", "server_cursor_factory", "prepare_threshold", "prepared_max"),
    *("autocommit", "isolation_level", "read_only", "deferrable"),
)


def mode(connection: sqlite3.Connection) -> Any:
    """Python 3.12's, which decides on what begins a transaction."""
    return getattr(connection, "autocommit", None)


@table("named_jobs", advisory_lock="named-{id}")
class KeyLockedNamedJob:
    id: str = column.id()
    payload: str = column.payload()


@contextmanager
def broker_on(database: Database, pool: str) -> Iterator[Broker]:
    """A broker with one connection for deliveries, and one to spare."""
    if pool == "own":
        with Broker(database.url, pool_size=2) as broker:
            yield broker
        return
    from psycopg_pool import ConnectionPool

    with ConnectionPool(database.url, min_size=2, max_size=2, open=True) as users, Broker(users) as broker:
        yield broker


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_settlement_works_on_its_own_table_whatever_schema_and_role_its_handler_chose(
    postgres_database: Database, tenant: Tenant, strategy: str, pool: str, change: str
) -> None:
    own, handled = postgres_database.name, list[str]()
    with broker_on(postgres_database, pool) as broker:
        queue = broker.queue(held_by(strategy, FullJob), "mail")
        broker.create_tables()
        tenant.made()

        @queue.handler(transactional=True, retry=0.01, max_attempts=3)
        def handle(message: str, delivery: Delivery) -> None:
            delivery.connection.execute(f"INSERT INTO {own}.effects VALUES (%s)", (message,))
            delivery.connection.execute(change.format(tenant=tenant.name))
            handled.append(message)
            if message == "two" and delivery.attempt == 1:
                raise ValueError("again")

        for message in ("one", "two", "three"):
            queue.enqueue(message)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged", count=3)
            queue.enqueue("four")
            recorder.wait_for("acknowledged", count=4)
        assert recorder.of("lease_lost", "trouble", "gone", "parked") == []
    assert sorted(handled) == ["four", "one", "three", "two", "two"]
    assert postgres_database.execute(EFFECTS) == [("four",), ("one",), ("three",), ("two",)]
    assert postgres_database.execute(OURS) == [(4,)]
    assert tenant.untouched


@pytest.mark.parametrize("ending", ["returns", "raises", "begins anew"])
@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_a_handler_set_and_committed_itself_does_not_stay_with_the_session(
    postgres_database: Database, tenant: Tenant, strategy: str, pool: str, ending: str
) -> None:
    with broker_on(postgres_database, pool) as broker:
        queue = broker.queue(held_by(strategy, FullJob), "mail")
        broker.create_tables()
        tenant.made()
        with broker.pool.connection() as connection:
            before = connection.driver.execute(STANDING).fetchone()

        @queue.handler(transactional=True, retry=None)
        def handle(message: Any, delivery: Delivery) -> None:
            delivery.connection.execute(CHANGES["both"].format(tenant=tenant.name))
            delivery.connection.execute("COMMIT")
            if ending == "begins anew":
                delivery.connection.execute("BEGIN")
            if ending == "raises":
                raise ValueError("no")

        queue.enqueue("one")
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("parked")
        assert recorder.of("lease_lost", "trouble", "gone") == []
        with broker.pool.connection() as one, broker.pool.connection() as another:
            for connection in (one, another):
                assert connection.driver.execute(STANDING).fetchone() == before
    assert tenant.untouched


@pytest.mark.parametrize("job", [NamedJob, KeyLockedNamedJob])
def test_what_a_handler_sets_on_a_sqlite_connection_holds_for_itself_alone(sqlite_database: Database, job: Any) -> None:
    """Ids that are texts would come as bytes, and a settlement by them find no row."""
    handled: list[tuple[str, str]] = []
    came: set[Any] = set()
    with Broker(sqlite_database.url, poll_interval=60.0) as broker:
        queue = broker.queue(job)
        broker.create_tables()

        @queue.handler(transactional=True)
        def handle(message: str, delivery: Delivery) -> None:
            connection = delivery.connection
            came.add((connection.text_factory, connection.row_factory, connection.isolation_level, mode(connection)))
            handled.append((message, delivery.id))
            connection.text_factory, connection.row_factory, connection.isolation_level = bytes, sqlite3.Row, "DEFERRED"
            if mode(connection) is not None:
                connection.autocommit = False

        for name in ("a", "b", "c"):
            queue.enqueue(job(id=name, payload=f'"{name}"'))
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged", count=3)
        assert recorder.of("gone", "lease_lost", "trouble") == []
        with broker.pool.connection() as one, broker.pool.connection() as another:
            for driver in (one.driver, another.driver):
                came.add((driver.text_factory, driver.row_factory, driver.isolation_level, mode(driver)))
    assert handled == [("a", "a"), ("b", "b"), ("c", "c")]
    assert len(came) == 1
    assert sqlite_database.execute("SELECT count(*) FROM named_jobs") == [(0,)]


@pytest.mark.parametrize("ending", ["returns", "commits", "commits and begins"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_a_handler_sets_on_a_connection_of_a_users_pool_is_set_back(
    postgres_database: Database, strategy: str, ending: str
) -> None:
    from psycopg import ClientCursor, ServerCursor
    from psycopg.rows import dict_row
    from psycopg_pool import ConnectionPool

    class OwnServerCursor(ServerCursor[Any]):
        pass

    settings = {"autocommit": True, "prepare_threshold": 7}
    with (
        ConnectionPool(postgres_database.url, kwargs=settings, min_size=2, max_size=2, open=True) as users,
        Broker(users) as broker,
    ):
        queue = broker.queue(held_by(strategy, FullJob), "mail")
        broker.create_tables()
        with users.connection() as connection:
            before = [getattr(connection, name) for name in OF_A_CONNECTION]

        @queue.handler(transactional=True, retry=None)
        def handle(message: Any, delivery: Delivery) -> None:
            connection = delivery.connection
            connection.row_factory, connection.cursor_factory = dict_row, ClientCursor
            connection.server_cursor_factory = OwnServerCursor
            connection.prepare_threshold, connection.prepared_max = 1, 3
            if ending != "returns":
                connection.commit()
                connection.autocommit, connection.read_only = False, True
            if ending == "commits and begins":
                connection.execute("SELECT 1")

        queue.enqueue("one")
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged" if ending == "returns" else "parked")
        assert recorder.of("gone", "lease_lost", "trouble") == []
        with users.connection() as one, users.connection() as another:
            for connection in (one, another):
                assert [getattr(connection, name) for name in OF_A_CONNECTION] == before


@pytest.mark.parametrize("threshold", [None, 0, 1])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_psycopg_prepares_for_a_handler_and_forgets_is_no_trouble_of_ours(
    postgres_database: Database, strategy: str, threshold: int | None
) -> None:
    """At a rollback psycopg forgets what it has prepared, and a handler may do so by hand."""
    from psycopg_pool import ConnectionPool

    settings = {"prepare_threshold": threshold}
    with (
        ConnectionPool(postgres_database.url, kwargs=settings, min_size=2, max_size=2, open=True) as users,
        Broker(users) as broker,
    ):
        queue = broker.queue(held_by(strategy, FullJob), "mail")
        broker.create_tables()
        postgres_database.execute("CREATE TABLE effects (message text)")

        @queue.handler(transactional=True, retry=0.01, max_attempts=3)
        def handle(message: str, delivery: Delivery) -> None:
            delivery.connection.execute("INSERT INTO effects VALUES (%s)", (message,))
            with delivery.connection.transaction(force_rollback=True):
                delivery.connection.execute("CREATE TABLE gone (id int)")
            delivery.connection.execute("DEALLOCATE ALL")
            if delivery.attempt == 1:
                raise ValueError("again")

        for message in ("one", "two", "three"):
            queue.enqueue(message)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("acknowledged", count=3)
        assert recorder.of("lease_lost", "trouble", "gone", "parked") == []
    assert postgres_database.execute(EFFECTS) == [("one",), ("three",), ("two",)]
