"""A caller's connection: our statements join its transaction."""

from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

import sqlqueue_postgres
from sqlqueue.dialect import Connection
from sqlqueue.errors import DeclarationError
from sqlqueue_postgres import PostgresDialect
from tests.support.database import Database
from tests.unit.postgres.helpers import JOBS, SCHEMA, call, compose

INSERT = call("INSERT INTO jobs (payload) VALUES (:p) RETURNING payload", 1, p=b"a")
MANY = compose("INSERT INTO jobs (payload) VALUES (:payload)")
PAYLOAD = [JOBS.columns[3]]


@pytest.fixture
def jobs(postgres_database: Database) -> Database:
    postgres_database.script(SCHEMA)
    return postgres_database


def adopted(dialect: PostgresDialect, driver: "psycopg.Connection[Any]") -> Connection:
    connection = dialect.adopt(driver)
    assert connection is not None
    return connection


def count(database: Database) -> int:
    return int(database.execute("SELECT count(*) FROM jobs")[0][0])


def test_the_callers_rollback_undoes_and_its_commit_keeps(jobs: Database, dialect: PostgresDialect) -> None:
    with psycopg.connect(jobs.url, row_factory=dict_row) as driver:
        connection = adopted(dialect, driver)
        assert connection.run([INSERT, INSERT]) == [[(b"a",)], [(b"a",)]]
        assert connection.insert_many(MANY, JOBS, PAYLOAD, [(b"b",)] * 3) == 3
        assert count(jobs) == 0
        driver.rollback()
        connection.run([INSERT])
        driver.commit()
        assert count(jobs) == 1


def test_a_failure_is_the_drivers_own_and_a_block_of_the_callers_contains_it(
    jobs: Database, dialect: PostgresDialect
) -> None:
    with psycopg.connect(jobs.url) as driver:
        connection = adopted(dialect, driver)
        connection.run([INSERT])
        with pytest.raises(psycopg.errors.NotNullViolation), driver.transaction():
            connection.run([call("INSERT INTO jobs (attempt) VALUES (NULL)")])
        connection.run([INSERT])
    assert count(jobs) == 2


def test_autocommit_commits_all_calls_or_none(jobs: Database, dialect: PostgresDialect) -> None:
    with psycopg.connect(jobs.url, autocommit=True) as driver:
        connection = adopted(dialect, driver)
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.run([INSERT, call("SELECT 1 / 0", 1)])
        assert count(jobs) == 0
        connection.run([INSERT])
        connection.insert_many(MANY, JOBS, PAYLOAD, [(b"b",)])
        assert count(jobs) == 2
        with driver.transaction(force_rollback=True):
            connection.run([INSERT, INSERT])
        assert count(jobs) == 2


def test_it_works_within_the_callers_pipeline(jobs: Database, dialect: PostgresDialect) -> None:
    with psycopg.connect(jobs.url) as driver, driver.pipeline():
        connection = adopted(dialect, driver)
        assert connection.run([INSERT]) == [[(b"a",)]]
        assert connection.insert_many(MANY, JOBS, PAYLOAD, [(b"b",), (b"c",)]) == 2
    assert jobs.execute("SELECT payload FROM jobs ORDER BY id") == [(b"a",), (b"b",), (b"c",)]


def test_within_the_callers_pipeline_many_rows_are_all_there_or_none(jobs: Database, dialect: PostgresDialect) -> None:
    with psycopg.connect(jobs.url) as driver, driver.pipeline():
        connection = adopted(dialect, driver)
        with pytest.raises(psycopg.ProgrammingError, match="cannot adapt type 'object'"):
            connection.insert_many(MANY, JOBS, PAYLOAD, [(b"a",), (object(),)])
        connection.run([INSERT])
    assert count(jobs) == 1


def test_what_is_not_ours_is_left_to_others(dialect: PostgresDialect) -> None:
    assert dialect.adopt(object()) is None
    assert sqlqueue_postgres.sqlqueue_driver_connection(object()) is None
    assert sqlqueue_postgres.sqlqueue_dialect("sqlite://") is None
    assert sqlqueue_postgres.sqlqueue_dialect(object()) is None


def test_what_is_ours_is_taken(postgres_database: Database) -> None:
    pool: ConnectionPool[Any] = ConnectionPool(postgres_database.url, open=False)
    for source in ("postgres://h/d", "postgresql://h/d", pool):
        assert isinstance(sqlqueue_postgres.sqlqueue_dialect(source), PostgresDialect)
    with psycopg.connect(postgres_database.url) as driver:
        assert sqlqueue_postgres.sqlqueue_driver_connection(driver) is driver


def test_what_serves_an_event_loop_is_refused(dialect: PostgresDialect) -> None:
    with pytest.raises(DeclarationError, match="event loop"):
        sqlqueue_postgres.sqlqueue_dialect(AsyncConnectionPool("", open=False))
    connection = psycopg.AsyncConnection.__new__(psycopg.AsyncConnection)
    assert sqlqueue_postgres.sqlqueue_driver_connection(connection) is connection
    with pytest.raises(DeclarationError, match="event loop"):
        dialect.adopt(connection)
