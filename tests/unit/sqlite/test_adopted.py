"""A caller's own connection: we join, and leave everything as it was."""

import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sqlqueue.dialect import Connection
from sqlqueue.spec import TableSpec
from sqlqueue_sqlite import sqlqueue_after_commit
from sqlqueue_sqlite.dialect import SQLiteDialect
from tests.support.database import Database
from tests.unit.sqlite.conftest import ask, call, compose

INSERT = "INSERT INTO jobs (id, payload) VALUES (:id, :payload) RETURNING id"
WITH = "WITH new (id) AS (SELECT :id) INSERT INTO jobs (id, payload) SELECT id, :payload FROM new RETURNING id"


@pytest.fixture(autouse=True)
def _table(connection: Connection) -> None:
    """The table is there."""


@pytest.fixture(params=["", "DEFERRED", "IMMEDIATE", None], ids=repr)
def theirs(request: pytest.FixtureRequest, path: Path) -> Iterator[sqlite3.Connection]:
    driver = sqlite3.connect(path, isolation_level=request.param, timeout=0)
    yield driver
    driver.close()


@pytest.fixture
def implicit(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection as `sqlite3.connect` makes it."""
    driver = sqlite3.connect(path, timeout=0)
    yield driver
    driver.close()


def adopt(dialect: SQLiteDialect, driver: sqlite3.Connection) -> Connection:
    adopted = dialect.adopt(driver)
    assert adopted is not None
    assert adopted.driver is driver
    return adopted


def ids(database: Database) -> list[Any]:
    """The committed ids, as another program sees them."""
    return [row[0] for row in database.execute("SELECT id FROM jobs ORDER BY id")]


def test_what_is_not_sqlites_is_not_adopted(dialect: SQLiteDialect) -> None:
    assert dialect.adopt(object()) is None


@pytest.mark.parametrize("insert", [INSERT, WITH])
def test_an_insert_joins_the_open_transaction(
    dialect: SQLiteDialect, theirs: sqlite3.Connection, sqlite_database: Database, insert: str
) -> None:
    theirs.execute("BEGIN")
    assert adopt(dialect, theirs).run([call(insert, id=1, payload=b"")]) == [[(1,)]]
    assert ids(sqlite_database) == []
    theirs.rollback()
    assert ids(sqlite_database) == []


@pytest.mark.parametrize("insert", [INSERT, WITH])
def test_an_insert_begins_a_transaction_where_the_drivers_would(
    dialect: SQLiteDialect, theirs: sqlite3.Connection, sqlite_database: Database, insert: str
) -> None:
    adopt(dialect, theirs).run([call(insert, id=1, payload=b"")])
    expected = theirs.isolation_level is not None
    assert theirs.in_transaction is expected
    assert ids(sqlite_database) == ([] if expected else [1])
    theirs.commit()
    assert ids(sqlite_database) == [1]


if sys.version_info >= (3, 12):  # sqlite3.Connection.autocommit is new there

    @pytest.mark.parametrize("autocommit", [True, False])
    def test_the_autocommit_attribute_decides(
        dialect: SQLiteDialect, path: Path, sqlite_database: Database, autocommit: bool
    ) -> None:
        options: Any = {"autocommit": autocommit}
        driver = sqlite3.connect(path, **options)
        try:
            adopted = adopt(dialect, driver)
            adopted.run([call(INSERT, given=("id",), id=[1, 2], payload=b"")])
            assert driver.in_transaction is not autocommit
            assert ids(sqlite_database) == ([1, 2] if autocommit else [])
            driver.rollback()
        finally:
            driver.close()


def test_reading_begins_nothing(dialect: SQLiteDialect, theirs: sqlite3.Connection) -> None:
    assert ask(adopt(dialect, theirs), "SELECT count(*) FROM jobs") == [(0,)]
    assert not theirs.in_transaction


def test_the_clock_is_read_and_nothing_begins(dialect: SQLiteDialect, theirs: sqlite3.Connection) -> None:
    assert dialect.read_clock(adopt(dialect, theirs)).year > 2000
    assert not theirs.in_transaction


def test_several_executions_are_all_or_none(
    dialect: SQLiteDialect, theirs: sqlite3.Connection, sqlite_database: Database
) -> None:
    adopted = adopt(dialect, theirs)
    with pytest.raises(sqlite3.IntegrityError):
        adopted.run([call(INSERT, given=("id",), id=[1, 1], payload=b"")])
    adopted.run([call(INSERT, id=2, payload=b""), call(INSERT, id=3, payload=b"")])
    theirs.commit()
    assert ids(sqlite_database) == [2, 3]


def test_a_failure_keeps_what_the_caller_wrote(
    dialect: SQLiteDialect, implicit: sqlite3.Connection, jobs: TableSpec, sqlite_database: Database
) -> None:
    implicit.execute("INSERT INTO jobs (id, payload) VALUES (1, x'')")
    insert = compose("INSERT INTO jobs (id, payload) VALUES (:id, :payload)")
    with pytest.raises(sqlite3.IntegrityError):
        adopt(dialect, implicit).insert_many(insert, jobs, jobs.columns, [(2, b""), (1, b"")])
    implicit.commit()
    assert ids(sqlite_database) == [1]


def test_insert_many_joins_as_well(
    dialect: SQLiteDialect, theirs: sqlite3.Connection, jobs: TableSpec, sqlite_database: Database
) -> None:
    insert = compose("INSERT INTO jobs (id, payload) VALUES (:id, :payload)")
    theirs.execute("BEGIN")
    assert adopt(dialect, theirs).insert_many(insert, jobs, jobs.columns, [(1, b""), (2, b"")]) == 2
    assert ids(sqlite_database) == []
    theirs.commit()
    assert ids(sqlite_database) == [1, 2]


def test_foreign_factories_do_not_matter_and_stay(dialect: SQLiteDialect, implicit: sqlite3.Connection) -> None:
    def mapping(cursor: sqlite3.Cursor, row: Any) -> Any:
        return {"row": row}

    implicit.row_factory = mapping
    implicit.text_factory = bytes
    assert ask(adopt(dialect, implicit), "SELECT :a, :b", a="ä", b=1) == [("ä", 1)]
    assert (implicit.row_factory, implicit.text_factory) == (mapping, bytes)


def test_who_makes_many_rows_reads_by_his_own_factories(
    dialect: SQLiteDialect, implicit: sqlite3.Connection, jobs: TableSpec, sqlite_database: Database
) -> None:
    insert = compose("INSERT INTO jobs (id, payload) VALUES (:id, :payload)")
    implicit.text_factory = bytes
    rows = ((number, text) for number, text in implicit.execute("SELECT 1, 'ä' UNION SELECT 2, 'ö'"))
    assert adopt(dialect, implicit).insert_many(insert, jobs, jobs.columns, rows) == 2
    implicit.commit()
    assert sqlite_database.execute("SELECT payload FROM jobs ORDER BY id") == [("ä".encode(),), ("ö".encode(),)]


def test_a_locked_database_is_the_callers_error(
    dialect: SQLiteDialect, implicit: sqlite3.Connection, sqlite_database: Database
) -> None:
    sqlite_database.connect().execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.OperationalError, match=r"^database is locked$"):
        adopt(dialect, implicit).run([call(INSERT, id=1, payload=b"")])


def test_what_is_committed_is_told_at_once_and_of_a_later_commit_nothing_is_known(
    implicit: sqlite3.Connection,
) -> None:
    told: list[str] = []
    assert sqlqueue_after_commit(implicit, lambda: told.append("outside")) is True
    implicit.execute("BEGIN")
    assert sqlqueue_after_commit(implicit, lambda: told.append("inside")) is None
    assert sqlqueue_after_commit(object(), lambda: told.append("elsewhere")) is None
    implicit.commit()
    assert told == ["outside"]
