"""What is asked of the database when a consumer starts."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
import psycopg
import pytest
from psycopg_pool import ConnectionPool

from sqlqueue.dialect import ColumnFacts, Connection, Pool, PoolSettings
from sqlqueue.errors import SchemaError, Unsupported
from sqlqueue_postgres import PostgresDialect
from tests.support.database import Database
from tests.unit.postgres.helpers import CLAIM, JOBS, ORDERS, SCHEMA, compose

TABLE = """
CREATE DOMAIN moment AS timestamptz(3) NOT NULL;
CREATE TYPE "Colour" AS ENUM ('red');
CREATE TABLE jobs (
    id bigint GENERATED ALWAYS AS IDENTITY,
    "Due" timestamptz(0),
    at moment,
    plain timestamp DEFAULT now(),
    colour "Colour",
    tags text[],
    name varchar(10) NOT NULL,
    gone int
);
ALTER TABLE jobs DROP COLUMN gone;
"""


@pytest.fixture(params=["own", "lent", "adopted"])
def connection(
    request: pytest.FixtureRequest, postgres_database: Database, dialect: PostgresDialect, pool: Pool
) -> Iterator[Connection]:
    if request.param == "own":
        with pool.connection() as own:
            yield own
    elif request.param == "lent":
        with ConnectionPool(postgres_database.url, min_size=1, max_size=1, open=True) as users:
            users_pool = PostgresDialect(users).open_pool(PoolSettings())
            with users_pool.connection() as lent:
                yield lent
    else:
        with psycopg.connect(postgres_database.url) as driver:
            adopted = dialect.adopt(driver)
            assert adopted is not None
            yield adopted


def test_a_table_is_described_as_the_database_has_it(
    postgres_database: Database, dialect: PostgresDialect, connection: Connection
) -> None:
    postgres_database.script(TABLE)
    found = dialect.describe(connection, JOBS)
    timestamptz = "timestamp with time zone"
    assert found == {
        "id": ColumnFacts(type="bigint", nullable=False, has_default=True),
        "Due": ColumnFacts(type=timestamptz, nullable=True, precision=0),
        "at": ColumnFacts(type=timestamptz, nullable=False, precision=3),
        "plain": ColumnFacts(type="timestamp without time zone", nullable=True, has_default=True),
        "colour": ColumnFacts(type='"colour"', nullable=True),
        "tags": ColumnFacts(type="text[]", nullable=True),
        "name": ColumnFacts(type="character varying", nullable=False),
    }


def test_a_name_means_what_the_search_path_says(
    postgres_database: Database, dialect: PostgresDialect, connection: Connection
) -> None:
    assert dialect.describe(connection, JOBS) is None
    postgres_database.script('CREATE TABLE "Jobs" (id int); CREATE VIEW jobs AS SELECT 1 AS id')
    with pytest.raises(SchemaError, match=r"'jobs' is a view"):
        dialect.describe(connection, JOBS)
    postgres_database.script("DROP VIEW jobs; CREATE TABLE jobs (id int) PARTITION BY LIST (id)")
    for spec in (JOBS, attrs.evolve(JOBS, schema=postgres_database.name)):
        assert list(dialect.describe(connection, spec) or ()) == ["id"]
    assert dialect.describe(connection, attrs.evolve(JOBS, schema="nowhere")) is None


def test_a_statement_is_prepared_and_forgotten(
    postgres_database: Database, dialect: PostgresDialect, connection: Connection
) -> None:
    postgres_database.script(SCHEMA)
    dialect.check_statement(connection, compose(CLAIM, 4, name="claim"))
    dialect.check_statement(connection, compose("INSERT INTO jobs (payload) VALUES ('x') RETURNING id", 1))
    for wrong, error in (
        ("UPDATE jobs SET nothing = :x", psycopg.errors.UndefinedColumn),
        ("SELECT * FROM nowhere", psycopg.errors.UndefinedTable),
    ):
        with pytest.raises(error, match="in the statement: claim") as caught:
            dialect.check_statement(connection, compose(wrong, name="claim"))
        assert caught.value.sqlstate == error.sqlstate
    assert connection.driver.execute("SELECT name FROM pg_prepared_statements WHERE from_sql").fetchall() == []
    assert postgres_database.execute("SELECT count(*) FROM jobs") == [(0,)]


def test_a_privilege_that_is_missing_is_found(
    postgres_database: Database, dialect: PostgresDialect, connection: Connection
) -> None:
    postgres_database.script(SCHEMA)
    role = f"reader_{postgres_database.name}"
    postgres_database.script(
        f"CREATE ROLE {role}; GRANT USAGE ON SCHEMA {postgres_database.name} TO {role}; GRANT SELECT ON jobs TO {role}"
    )
    driver: psycopg.Connection[Any] = connection.driver
    try:
        driver.execute(f"SET ROLE {role}")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            dialect.check_statement(connection, compose(CLAIM, 4))
    finally:
        driver.execute("RESET ROLE")
        postgres_database.script(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_connection_that_only_reads_is_refused(dialect: PostgresDialect, connection: Connection) -> None:
    dialect.check_writable(connection)
    connection.driver.execute("SET transaction_read_only = on")
    connection.driver.execute("SET default_transaction_read_only = on")
    with pytest.raises(SchemaError, match="default_transaction_read_only"):
        dialect.check_writable(connection)


def test_an_old_server_is_refused(
    dialect: PostgresDialect, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect.check_server(connection)
    monkeypatch.setattr(psycopg.ConnectionInfo, "server_version", 120017)
    with pytest.raises(Unsupported, match="PostgreSQL 12; sqlqueue needs 13"):
        dialect.check_server(connection)


def test_the_servers_clock_is_read(dialect: PostgresDialect, connection: Connection) -> None:
    apart = abs(dialect.read_clock(connection) - datetime.now(timezone.utc))
    assert apart < timedelta(minutes=1)


IN_ORDER = """
WITH due AS MATERIALIZED (
    SELECT id FROM jobs WHERE {where} ORDER BY {order} LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE jobs SET locked_until = :expiry FROM due WHERE jobs.id = due.id RETURNING jobs.id
"""

TWO_RANGES = """
WITH due AS MATERIALIZED (
    SELECT id FROM (
        (SELECT id, attempt FROM jobs WHERE locked_until IS NULL ORDER BY attempt, id LIMIT :limit)
        UNION ALL
        (SELECT id, attempt FROM jobs WHERE locked_until <= :now ORDER BY locked_until LIMIT :limit)
    ) AS ranges ORDER BY attempt, id LIMIT :limit
)
UPDATE jobs SET locked_until = :expiry FROM due WHERE jobs.id = due.id RETURNING jobs.id
"""


def test_a_claim_without_its_index_is_found(
    postgres_database: Database, dialect: PostgresDialect, connection: Connection
) -> None:
    postgres_database.script(SCHEMA)
    free = "locked_until IS NULL"

    def lacks(template: str, where: str = free, order: str = "id") -> bool:
        text = template.replace("{where}", where).replace("{order}", order)
        return dialect.lacks_index(connection, compose(text, 1), JOBS)

    connection.driver.commit()
    assert [lacks(IN_ORDER), lacks(IN_ORDER, order="attempt, id"), lacks(TWO_RANGES)] == [False, True, True]
    connection.driver.commit()
    postgres_database.script(dialect.create_index(JOBS, ["attempt", "id"], free))
    assert [lacks(IN_ORDER, order="attempt, id"), lacks(TWO_RANGES)] == [False, True]
    connection.driver.commit()
    postgres_database.script(dialect.create_index(JOBS, ["locked_until"], ""))
    assert lacks(TWO_RANGES) is False
    assert connection.driver.execute("SHOW enable_sort").fetchone() == ("on",)


def test_the_recommended_table_fits_what_it_was_made_from(
    postgres_database: Database, dialect: PostgresDialect, connection: Connection
) -> None:
    for spec in (JOBS, ORDERS):
        for statement in dialect.create_table(spec):
            postgres_database.script(statement)
        described = dialect.describe(connection, spec)
        assert described is not None
        assert [dialect.misfit(each, described[each.name]) for each in spec.columns] == [None] * len(spec.columns)
