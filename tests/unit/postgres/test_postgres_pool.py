"""Pools: our own from a URL, and the user's."""

import os
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool, NullConnectionPool, PoolClosed, PoolTimeout

from sqlqueue.dialect import Connection, Pool, PoolSettings
from sqlqueue.errors import Unsupported
from sqlqueue.sql import Begin
from sqlqueue_postgres import PostgresDialect
from sqlqueue_postgres.pool import parameters
from tests.support.database import Database
from tests.unit.postgres.helpers import JOBS, SCHEMA, call, compose

SHOW = call(
    "SELECT current_setting('transaction_isolation'), current_setting('statement_timeout'), "
    "current_setting('application_name')",
    3,
)
PAYLOAD = [JOBS.columns[3]]
INSERT = compose("INSERT INTO jobs (payload) VALUES (:payload)")


@pytest.fixture
def users(postgres_database: Database) -> Iterator["ConnectionPool[Any]"]:
    with ConnectionPool(
        postgres_database.url,
        kwargs={"row_factory": dict_row, "autocommit": False},
        configure=_serializable,
        min_size=1,
        max_size=1,
        open=True,
    ) as pool:
        yield pool


def _serializable(connection: "psycopg.Connection[Any]") -> None:
    connection.execute("SET default_transaction_isolation = 'serializable'; SET statement_timeout = '77s'")
    connection.commit()


def wrap(pool: "ConnectionPool[Any]", timeout: float = 2.5) -> Pool:
    return PostgresDialect(pool).open_pool(PoolSettings(size=9, statement_timeout=timeout))


def test_our_own_sessions_are_read_committed_with_a_time_limit(postgres_database: Database, pool: Pool) -> None:
    with pool.connection() as connection:
        assert connection.run([SHOW]) == [[("read committed", "10s", postgres_database.name)]]
        assert connection.driver.autocommit
    assert pool.size == 3


def test_our_own_sessions_keep_to_indexes_and_a_handlers_transaction_is_as_it_came(
    postgres_database: Database, pool: Pool
) -> None:
    """A plan that is made for an empty table is kept when it is not empty any more."""
    postgres_database.execute("CREATE TABLE small (id int PRIMARY KEY, due int)")
    postgres_database.execute("CREATE INDEX ON small (due)")
    asked = "SELECT id FROM small WHERE due <= 1 ORDER BY due LIMIT 5", "SELECT due FROM small WHERE id = ANY('{1,2}')"
    settings = "SELECT name, setting FROM pg_settings WHERE name LIKE 'enable%' OR name IN ('jit', 'statement_timeout')"
    usual = dict(postgres_database.execute(settings))

    def plans(driver: Any) -> list[str]:
        return ["\n".join(line for (line,) in driver.execute(f"EXPLAIN {sql}").fetchall()) for sql in asked]

    with pool.connection() as connection:
        driver: Any = connection.driver
        assert all("Index" in plan and "Bitmap" not in plan for plan in plans(driver))
        lent = connection.lend(Begin())  # type: ignore[attr-defined]  # it is a Session
        assert dict(lent.execute(settings).fetchall()) == usual
        assert any("Seq Scan" in plan or "Bitmap" in plan for plan in plans(lent))
        connection.take_back()  # type: ignore[attr-defined]
        connection.roll_back()  # type: ignore[attr-defined]
        assert all("Index" in plan for plan in plans(driver))


def test_a_url_that_names_no_application_is_called_sqlqueue(postgres_database: Database) -> None:
    params = conninfo_to_dict(postgres_database.url)
    params.pop("application_name")
    url = make_conninfo("", **params)
    with psycopg.connect(url, **parameters(url)) as driver:
        assert driver.execute("SHOW application_name").fetchone() == ("sqlqueue",)


def test_nothing_connects_before_the_first_use(postgres_database: Database, pool: Pool) -> None:
    count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = ? AND query LIKE '%set_config%'"
    assert postgres_database.execute(count + " AND pid <> pg_backend_pid()", postgres_database.name) == [(0,)]
    with pool.connection() as connection:
        assert connection.run([call("SELECT 1", 1)]) == [[(1,)]]


def test_a_pool_without_a_free_connection_says_so_in_time(pool: Pool) -> None:
    with pool.connection(), pool.connection(), pool.connection(), pytest.raises(PoolTimeout):
        pool.connection(timeout=0.05).__enter__()


def test_a_closed_pool_lends_nothing(pool: Pool) -> None:
    pool.close()
    with pytest.raises(PoolClosed), pool.connection():
        pass


def test_connections_that_the_server_ended_are_passed_over(postgres_database: Database, pool: Pool) -> None:
    pids = []
    with pool.connection() as one, pool.connection() as two, pool.connection() as three:
        pids = [connection.driver.info.backend_pid for connection in (one, two, three)]
    for pid in pids:
        postgres_database.execute("SELECT pg_terminate_backend(?, 2000)", pid)
    with pool.connection() as connection:
        assert connection.run([call("SELECT 1", 1)]) == [[(1,)]]
        assert connection.driver.info.backend_pid not in pids


@pytest.mark.abandons
def test_a_forked_child_opens_its_own_connections(pool: Pool) -> None:
    with pool.connection() as connection:
        before = connection.driver.info.backend_pid
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with pool.connection() as connection:
            os.write(writer, str(connection.driver.info.backend_pid).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert int(os.read(reader, 20)) != before
    with pool.connection() as connection:
        assert connection.driver.info.backend_pid == before


def test_a_users_connection_goes_back_as_it_came(users: "ConnectionPool[Any]") -> None:
    pool = wrap(users)
    with pool.connection() as connection:
        rows = connection.run([SHOW, call("CREATE TEMP TABLE kept (id int)"), call("SELECT :n", 1, n=5)], durable=False)
        driver = connection.driver
    assert [rows[0][0][:2], rows[1:]] == [("read committed", "2500ms"), [[], [(5,)]]]
    assert (driver.autocommit, driver.row_factory) == (False, dict_row)
    with users.connection() as mine:
        assert mine is driver
        assert mine.execute("SHOW transaction_isolation").fetchone() == {"transaction_isolation": "serializable"}
        assert mine.execute("SHOW statement_timeout").fetchone() == {"statement_timeout": "77s"}
        assert mine.execute("SHOW synchronous_commit").fetchone() == {"synchronous_commit": "on"}
        assert mine.execute("SELECT * FROM kept").fetchall() == []
    pool.close()
    assert (users.closed, pool.size) == (False, 1)


def test_a_failure_on_a_users_connection_leaves_nothing_behind(users: "ConnectionPool[Any]") -> None:
    pool = wrap(users, timeout=0.05)
    for wrong, error in (
        ("SELECT 1 / 0", psycopg.errors.DivisionByZero),
        ("SELECT pg_sleep(5)", psycopg.errors.QueryCanceled),
    ):
        with pool.connection() as connection:
            with pytest.raises(error):
                connection.run([call("CREATE TEMP TABLE gone (id int)"), call(wrong, 1)])
            assert connection.run([call("SELECT to_regclass('gone')::text", 1)]) == [[(None,)]]


def test_a_pool_without_idle_connections_serves_as_well(postgres_database: Database) -> None:
    with NullConnectionPool(postgres_database.url, max_size=2, open=True) as users:
        pool = wrap(users)
        with pool.connection() as connection:
            assert connection.run([call("SELECT 1", 1)]) == [[(1,)]]
        assert pool.size == 2


def test_a_pool_that_is_not_open_is_the_users_to_open(postgres_database: Database) -> None:
    pool = wrap(ConnectionPool(postgres_database.url, open=False))
    for ask in (pool.probe, lambda: pool.connection().__enter__()):
        with pytest.raises(PoolClosed, match=r"is not open; it is yours: call its open\(\)"):
            ask()


@pytest.mark.abandons
def test_a_users_pool_from_before_a_fork_is_refused(users: "ConnectionPool[Any]") -> None:
    pool = wrap(users)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            pool.connection().__enter__()
        except Unsupported as error:
            os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as told:
        assert f"the pool {users.name!r} was opened before this process was forked" in told.read()


def test_probe_lets_the_drivers_own_error_out(postgres_database: Database, users: "ConnectionPool[Any]") -> None:
    wrap(users).probe()
    dialect = PostgresDialect("postgresql:///nowhere?" + postgres_database.url.partition("?")[2])
    with pytest.raises(psycopg.OperationalError, match='database "nowhere" does not exist'):
        dialect.open_pool(PoolSettings()).probe()


def rows(connection: Connection) -> int:
    return int(connection.run([call("SELECT count(*) FROM jobs", 1)])[0][0][0])


def test_many_rows_are_inserted_or_none(postgres_database: Database, pool: Pool, users: "ConnectionPool[Any]") -> None:
    postgres_database.script(SCHEMA)
    postgres_database.execute("ALTER TABLE jobs ADD CHECK (payload <> 'bad')")
    for each in (pool, wrap(users)):
        with each.connection() as connection:
            before = rows(connection)
            assert connection.insert_many(INSERT, JOBS, PAYLOAD, ((b"\\x\t\n",) for _ in range(100))) == 100
            with pytest.raises(psycopg.errors.CheckViolation):
                connection.insert_many(INSERT, JOBS, PAYLOAD, [(b"a",), (b"bad",)])
            with pytest.raises(ZeroDivisionError):
                connection.insert_many(INSERT, JOBS, PAYLOAD, ((1 // n,) for n in (0,)))
            assert rows(connection) == before + 100
    assert postgres_database.execute("SELECT DISTINCT payload FROM jobs") == [(b"\\x\t\n",)]
    with users.connection() as mine:
        assert mine.execute("SHOW statement_timeout").fetchone() == {"statement_timeout": "77s"}


def test_the_source_is_shown_without_secrets(postgres_database: Database) -> None:
    url = "postgres://u%40x:s3cret@h.example:5433/d%20b?sslpassword=s3cret&options=-csearch_path%3Dx"
    shown = "postgresql://u%40x@h.example:5433/d%20b"
    assert PostgresDialect(url).source == shown
    pool: ConnectionPool[Any] = ConnectionPool(
        "host=h.example port=5433", kwargs={"user": "u@x", "dbname": "d b", "password": "s3cret"}, open=False
    )
    assert PostgresDialect(pool).source == shown


def test_a_url_that_cannot_be_read_is_refused_without_showing_it() -> None:
    with pytest.raises(ValueError, match="percent-encoded") as caught:
        PostgresDialect("postgresql://u:s3cret@h/x?nonsense=s3cret")
    assert "s3cret" not in str(caught.value)
