"""What the database says of itself, and which columns cannot hold a role."""

import sqlite3
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import attrs
import pytest

from sqlqueue import column
from sqlqueue.clock import UTC
from sqlqueue.dialect import ColumnFacts, Connection, PoolSettings
from sqlqueue.errors import SchemaError, Unsupported
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, TableSpec, spec_of
from sqlqueue.table import table
from sqlqueue_sqlite import database
from sqlqueue_sqlite.database import Location
from sqlqueue_sqlite.ddl import affinity
from sqlqueue_sqlite.dialect import SQLiteDialect
from tests.unit.sqlite.conftest import compose


@table("jobs")
class Grouped:
    id: int = column.id(generated=True)
    queue: str = column.group()
    due: datetime | None = column.retry_after()
    payload: bytes = column.payload()


def test_columns_are_described(connection: Connection, dialect: SQLiteDialect, jobs: TableSpec) -> None:
    assert dialect.describe(connection, jobs) == {
        "id": ColumnFacts(type="integer", nullable=False, has_default=True),
        "locked_until": ColumnFacts(type="text", nullable=True),
        "payload": ColumnFacts(type="blob", nullable=False),
    }


def test_types_come_without_arguments_and_generated_columns_have_a_default(
    connection: Connection, dialect: SQLiteDialect
) -> None:
    connection.driver.execute(
        "CREATE TABLE odd (a VARCHAR(20) DEFAULT 'x', b, c INT AS (1), d BIGINT PRIMARY KEY) WITHOUT ROWID"
    )
    facts = dialect.describe(connection, attrs.evolve(spec_of(Grouped), name="odd", schema="main"))
    assert facts == {
        "a": ColumnFacts(type="varchar", nullable=True, has_default=True),
        "b": ColumnFacts(type="", nullable=True),
        "c": ColumnFacts(type="int", nullable=True, has_default=True),
        "d": ColumnFacts(type="bigint", nullable=False),
    }


@pytest.mark.parametrize(("name", "schema"), [("missing", None), ("jobs", "missing"), ("jobs", "temp")])
def test_a_missing_table_is_none(
    connection: Connection, dialect: SQLiteDialect, jobs: TableSpec, name: str, schema: str | None
) -> None:
    assert dialect.describe(connection, attrs.evolve(jobs, name=name, schema=schema)) is None


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        ("integer", "INTEGER"),
        ("bigint", "INTEGER"),
        ("varchar", "TEXT"),
        ("text", "TEXT"),
        ("blob", "BLOB"),
        ("", "BLOB"),
        ("double precision", "REAL"),
        ("datetime", "NUMERIC"),
        ("timestamp", "NUMERIC"),
        ("boolean", "NUMERIC"),
        ("json", "NUMERIC"),
    ],
)
def test_affinity_is_sqlites(connection: Connection, type: str, expected: str) -> None:
    assert affinity(type) == expected


def spec(role: Role, kind: Any, **changed: Any) -> ColumnSpec:
    return ColumnSpec(field="it", type=kind, role=role, default=attrs.NOTHING, **changed)


FITS = [
    (spec(Role.LEASE, datetime), "text"),
    (spec(Role.LEASE, datetime), "datetime"),
    (spec(Role.LEASE, datetime), "timestamp"),
    (spec(Role.LEASE, datetime), ""),
    (spec(Role.LEASE, int), "integer"),
    (spec(Role.LEASE, float), "real"),
    (spec(Role.LEASE, float), "datetime"),
    (spec(Role.ID, int, generated=True), "integer"),
    (spec(Role.ID, UUID), "uuid"),
    (spec(Role.ID, bytes), "blob"),
    (spec(Role.PAYLOAD, bytes), "text"),
    (spec(Role.PAYLOAD, Any), "integer"),
    (spec(Role.RUNNING, bool), "boolean"),
    (spec(Role.HEADERS, dict), "json"),
    (spec(Role.ERROR, str), "string"),
]

MISFITS = [
    (spec(Role.LEASE, datetime), "integer", "INTEGER affinity.*'lease'; make it TEXT, or declare the column as int"),
    (spec(Role.RETRY_AFTER, datetime), "real", "REAL affinity"),
    (spec(Role.LEASE, int), "text", "TEXT affinity.*make it INTEGER, or declare the column as datetime"),
    (spec(Role.ID, int), "text", "TEXT affinity.*make it INTEGER"),
    (spec(Role.ID, str), "integer", "make it TEXT"),
    (spec(Role.ID, str), "string", "NUMERIC affinity"),
    (spec(Role.GROUP, str), "bigint", "make it TEXT"),
    (spec(Role.ATTEMPT, int), "varchar", "make it INTEGER"),
    (spec(Role.PRIORITY, float), "text", "make it REAL"),
    (spec(Role.HEADERS, dict), "integer", "make it TEXT"),
]


@pytest.mark.parametrize(("declared", "type"), FITS)
def test_a_type_that_can_hold_the_role_fits(dialect: SQLiteDialect, declared: ColumnSpec, type: str) -> None:
    assert dialect.misfit(declared, ColumnFacts(type=type, nullable=True, has_default=True)) is None


@pytest.mark.parametrize(("declared", "type", "why"), MISFITS)
def test_a_type_that_cannot_says_why_and_how_to_mend_it(
    dialect: SQLiteDialect, declared: ColumnSpec, type: str, why: str
) -> None:
    found = dialect.misfit(declared, ColumnFacts(type=type, nullable=True, has_default=True))
    with pytest.raises(ValueError, match=why):
        raise ValueError(found)


def test_an_id_that_sqlite_would_not_generate_is_a_misfit(dialect: SQLiteDialect) -> None:
    facts = ColumnFacts(type="bigint", nullable=False)
    found = dialect.misfit(spec(Role.ID, int, generated=True), facts)
    assert found is not None
    assert "INTEGER PRIMARY KEY" in found
    assert dialect.misfit(spec(Role.ID, int), facts) is None


def test_a_lease_that_cannot_be_null_is_a_misfit(dialect: SQLiteDialect) -> None:
    found = dialect.misfit(spec(Role.LEASE, datetime, optional=True), ColumnFacts(type="text", nullable=False))
    assert found is not None
    assert "drop the NOT NULL" in found


def test_a_plain_column_is_the_users_own(dialect: SQLiteDialect) -> None:
    plain = ColumnSpec(field="it", type=int, default=attrs.NOTHING)
    assert dialect.misfit(plain, ColumnFacts(type="text", nullable=True)) is None


def test_a_statement_is_compiled_and_not_run(connection: Connection, dialect: SQLiteDialect) -> None:
    connection.driver.execute("INSERT INTO jobs (payload) VALUES (x'')")
    dialect.check_statement(connection, compose("DELETE FROM jobs WHERE :id IS NULL RETURNING id", given=("id",)))
    assert connection.driver.execute("SELECT count(*) FROM jobs").fetchall() == [(1,)]
    with pytest.raises(sqlite3.OperationalError, match="no such column: missing"):
        dialect.check_statement(connection, compose("DELETE FROM jobs WHERE missing = :id"))


def test_a_database_that_can_be_written_passes(connection: Connection, dialect: SQLiteDialect) -> None:
    dialect.check_writable(connection)
    assert not connection.driver.in_transaction


def test_query_only_is_told(connection: Connection, dialect: SQLiteDialect, path: Path) -> None:
    connection.driver.execute("PRAGMA query_only = ON")
    with pytest.raises(SchemaError, match=f"{path}.*query_only"):
        dialect.check_writable(connection)


def test_a_file_that_can_only_be_read_is_told(connection: Connection, path: Path) -> None:
    location = Location(name=f"{path.as_uri()}?mode=ro", shown=str(path), uri=True)
    dialect = SQLiteDialect(location)
    pool = dialect.open_pool(PoolSettings())
    try:
        with pool.connection() as lent, pytest.raises(SchemaError, match=f"{path} can only be read"):
            dialect.check_writable(lent)
    finally:
        pool.close()


def test_a_journal_that_cannot_be_changed_is_left(sqlite_database: Any, path: Path) -> None:
    sqlite_database.execute("CREATE TABLE jobs (a)")
    location = Location(name=f"{path.as_uri()}?mode=ro", shown=str(path), uri=True)
    pool = SQLiteDialect(location).open_pool(PoolSettings())
    try:
        with pool.connection() as lent:
            assert lent.driver.execute("PRAGMA journal_mode").fetchall() == [("delete",)]
    finally:
        pool.close()


def test_the_clock_is_read(connection: Connection, dialect: SQLiteDialect) -> None:
    assert abs(dialect.read_clock(connection) - datetime.now(UTC)) < timedelta(seconds=5)


def test_an_old_server_is_refused(
    connection: Connection, dialect: SQLiteDialect, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect.check_server(connection)
    monkeypatch.setattr(database, "VERSION", (3, 31, 1))
    with pytest.raises(Unsupported, match=r"SQLite 3\.31\.1"):
        dialect.check_server(connection)


CLAIM = """
WITH chosen AS MATERIALIZED (
  SELECT id FROM (
    SELECT * FROM (
      SELECT id, due FROM grouped WHERE queue = :queue AND due <= :now ORDER BY due, id LIMIT 5
    )
    UNION ALL
    SELECT * FROM (
      SELECT id, due FROM grouped WHERE queue = :queue AND due > :now AND due < :now ORDER BY due, id LIMIT 5
    )
  )
  ORDER BY due LIMIT 5
)
UPDATE grouped SET due = :now WHERE id IN (SELECT id FROM chosen) RETURNING id
"""

BY_ID = "UPDATE jobs SET payload = x'' WHERE id IN (SELECT id FROM jobs WHERE locked_until IS NULL ORDER BY id LIMIT 5)"


def test_a_claim_without_an_index_lacks_it(connection: Connection, dialect: SQLiteDialect) -> None:
    grouped = attrs.evolve(spec_of(Grouped), name="grouped")
    connection.driver.execute(dialect.create_table(grouped)[0])
    claim = compose(CLAIM)
    assert dialect.lacks_index(connection, claim, grouped)
    connection.driver.execute("CREATE INDEX half ON grouped (queue)")
    assert dialect.lacks_index(connection, claim, grouped)
    connection.driver.execute(dialect.create_index(grouped, ['"queue"', '"due"', '"id"'], ""))
    assert not dialect.lacks_index(connection, claim, grouped)


def test_a_claim_by_id_needs_no_index(connection: Connection, dialect: SQLiteDialect, jobs: TableSpec) -> None:
    assert not dialect.lacks_index(connection, compose(BY_ID), jobs)


def test_a_claim_by_id_out_of_one_group_lacks_an_index(connection: Connection, dialect: SQLiteDialect) -> None:
    assert dialect.lacks_index(connection, compose(BY_ID), spec_of(Grouped))
