"""Runs on a pool's connection: one transaction, given rows, and patience with other writers."""

import sqlite3
import threading
from typing import Any

import pytest

from sqlqueue.dialect import Connection, Trouble
from sqlqueue.spec import TableSpec
from sqlqueue.sql import Call
from sqlqueue_sqlite import connection as module
from sqlqueue_sqlite import prepared
from sqlqueue_sqlite.dialect import SQLiteDialect
from tests.support.database import Database
from tests.unit.sqlite.conftest import JOBS, OpenPool, ask, call, compose, dialect_of

LIMIT = 10.0  # seconds for a thread to do its part

INSERT = "INSERT INTO jobs (id, payload) VALUES (:id, :payload) RETURNING id"
DELETE = "DELETE FROM jobs WHERE id = :id AND payload = :payload RETURNING id"


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when somebody has found the database locked."""
    found = threading.Event()

    def uneven(seconds: float) -> float:
        found.set()
        return seconds

    monkeypatch.setattr(module, "uneven", uneven)
    return found


def count(connection: Connection) -> int:
    return int(ask(connection, "SELECT count(*) FROM jobs")[0][0])


def fill(connection: Connection, rows: int) -> None:
    insert = compose("INSERT INTO jobs (id, payload) VALUES (:id, :payload)")
    assert connection.insert_many(insert, JOBS, JOBS.columns, [(number, b"x") for number in range(rows)]) == rows


def test_a_file_is_opened_for_many_readers_and_durable_commits(connection: Connection) -> None:
    connection.run([call(INSERT, id=1, payload=b"")])
    pragmas = {
        name: ask(connection, f"PRAGMA {name}")[0][0]
        for name in ("journal_mode", "synchronous", "foreign_keys", "temp_store")
    }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 0, "temp_store": 2}


def test_the_calls_of_a_run_commit_together(connection: Connection, sqlite_database: Database) -> None:
    rows = connection.run([call(INSERT, id=1, payload=b"a"), call(INSERT, id=2, payload=b"b")])
    assert rows == [[(1,)], [(2,)]]
    assert sqlite_database.execute("SELECT id FROM jobs") == [(1,), (2,)]


def test_a_failing_call_rolls_all_back_and_leaves_the_connection_usable(connection: Connection) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        connection.run([call(INSERT, id=1, payload=b"a"), call(INSERT, id=1, payload=b"b")])
    assert count(connection) == 0
    connection.run([call(INSERT, id=1, payload=b"a")])


def test_a_call_with_given_rows_runs_once_for_each(connection: Connection) -> None:
    fill(connection, 5)
    deleted = connection.run([call(DELETE, given=("id",), id=[0, 2, 4, 9], payload=b"x")])
    assert deleted == [[(0,), (2,), (4,)]]
    assert ask(connection, "SELECT id FROM jobs ORDER BY id") == [(1,), (3,)]


def test_a_call_with_no_given_rows_does_nothing(connection: Connection) -> None:
    assert connection.run([call(DELETE, given=("id", "payload"), id=[], payload=[])]) == [[]]


def test_one_value_may_stand_in_several_places(connection: Connection) -> None:
    text = "SELECT :a, :b, :a, '?1', \"?2\", '?' -- ?1 and ?\n"
    found = connection.driver.execute("SELECT 1").fetchall()
    assert found == [(1,)]
    (row,) = ask(connection, text.replace('"?2"', "7"), a="x", b="y")
    assert row == ("x", "y", "x", "?1", 7, "?")


def test_a_statement_is_prepared_once() -> None:
    statement = compose("SELECT :a")
    assert prepared.prepare(statement) is prepared.prepare(statement)


def test_statements_without_end_are_not_all_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "_prepared", {})
    for _ in range(prepared._REMEMBERED + 10):
        prepared.prepare(compose("SELECT 1"))
    assert len(prepared._prepared) <= prepared._REMEMBERED


def test_insert_many_inserts_all_or_none(connection: Connection, jobs: TableSpec) -> None:
    insert = compose("INSERT INTO jobs (id, payload) VALUES (:id, :payload)")
    assert connection.insert_many(insert, jobs, jobs.columns, iter([(1, b"a"), (2, b"b")])) == 2
    with pytest.raises(sqlite3.IntegrityError):
        connection.insert_many(insert, jobs, jobs.columns, [(3, b"c"), (1, b"again")])
    assert count(connection) == 2


def test_insert_many_counts_only_what_is_new(connection: Connection, jobs: TableSpec) -> None:
    insert = compose("INSERT INTO jobs (id, payload) VALUES (:id, :payload) ON CONFLICT DO NOTHING")
    assert connection.insert_many(insert, jobs, jobs.columns, [(1, b"a"), (1, b"b"), (2, b"c")]) == 2


def test_rows_are_made_before_the_write_lock_is_taken(
    connection: Connection, jobs: TableSpec, sqlite_database: Database
) -> None:
    def slowly() -> Any:
        sqlite_database.execute("INSERT INTO jobs (id, payload) VALUES (7, x'')")
        yield (8, b"")

    insert = compose("INSERT INTO jobs (id, payload) VALUES (:id, :payload)")
    assert connection.insert_many(insert, jobs, jobs.columns, slowly()) == 1


def test_a_run_waits_for_another_writer(
    connection: Connection, sqlite_database: Database, waiting: threading.Event
) -> None:
    writer = sqlite_database.connect()
    writer.execute("BEGIN IMMEDIATE")
    done = threading.Event()
    results: list[Any] = []

    def insert() -> None:
        results.append(connection.run([call(INSERT, id=1, payload=b"")]))
        done.set()

    thread = threading.Thread(target=insert)
    thread.start()
    assert waiting.wait(LIMIT)
    assert not done.is_set()
    writer.execute("COMMIT")
    assert done.wait(LIMIT)
    thread.join(LIMIT)
    assert results == [[[(1,)]]]


def test_patience_ends_with_the_drivers_error(
    connection: Connection, dialect: SQLiteDialect, open_pool: OpenPool, sqlite_database: Database
) -> None:
    writer = sqlite_database.connect()
    writer.execute("BEGIN IMMEDIATE")
    with open_pool(statement_timeout=0.05).connection() as hasty:
        with pytest.raises(sqlite3.OperationalError, match="database is locked") as raised:
            hasty.run([call(INSERT, id=1, payload=b"")])
        assert dialect.classify(raised.value) is Trouble.TRANSIENT
        writer.execute("ROLLBACK")
        assert hasty.run([call(INSERT, id=1, payload=b"")]) == [[(1,)]]


def test_reading_takes_no_write_lock(connection: Connection, sqlite_database: Database) -> None:
    writer = sqlite_database.connect()
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("INSERT INTO jobs (id, payload) VALUES (1, x'')")
    look = call("SELECT count(*) FROM jobs", writes=False)
    assert connection.run([look]) == [[(0,)]]
    assert connection.run([look, look]) == [[(0,)], [(0,)]]
    assert not connection.driver.in_transaction


def test_writers_of_one_pool_take_turns(open_pool: OpenPool, connection: Connection) -> None:
    pool = open_pool(size=4)
    barrier = threading.Barrier(4)

    def insert(first: int) -> None:
        barrier.wait(LIMIT)
        for number in range(first, first + 25):
            with pool.connection() as lent:
                lent.run([call(INSERT, id=number, payload=b"")])

    threads = [threading.Thread(target=insert, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert count(connection) == 100


def test_memory_readers_wait_for_the_writer(open_pool: OpenPool, waiting: threading.Event) -> None:
    pool = open_pool(dialect_of("sqlite://"))
    with pool.connection() as writer, pool.connection() as reader:
        writer.driver.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, payload BLOB)")
        results: list[int] = []
        writer.driver.execute("BEGIN IMMEDIATE")
        writer.driver.execute("INSERT INTO jobs VALUES (1, x'')")
        thread = threading.Thread(target=lambda: results.append(count(reader)))
        thread.start()
        assert waiting.wait(LIMIT)
        writer.driver.execute("COMMIT")
        thread.join(LIMIT)
        assert results == [1]


def test_a_commit_that_need_not_be_durable_is_not_synced(connection: Connection) -> None:
    texts: list[str] = []
    connection.driver.set_trace_callback(texts.append)
    for durable in (True, True, False, True):
        connection.run([call(INSERT, id=len(texts), payload=b"")], durable=durable)
    switches = [text for text in texts if text.startswith("PRAGMA")]
    # Creating the table in the fixture has set FULL already.
    assert switches == ["PRAGMA synchronous = NORMAL", "PRAGMA synchronous = FULL"]


def test_text_that_is_no_utf8_comes_as_bytes_and_hides_no_other_row(connection: Connection) -> None:
    connection.driver.execute("INSERT INTO jobs (id, payload) VALUES (1, CAST(x'ff' AS TEXT)), (2, 'fine')")
    assert ask(connection, "SELECT payload FROM jobs ORDER BY id") == [(b"\xff",), ("fine",)]
    deleted = connection.run([call("DELETE FROM jobs WHERE :a RETURNING payload", a=1)])
    assert sorted(deleted[0], key=str) == [("fine",), (b"\xff",)]


def test_a_value_that_cannot_be_bound_leaves_no_transaction(connection: Connection) -> None:
    with pytest.raises(OverflowError):
        connection.run([Call(compose(INSERT), {"id": 2**70, "payload": b""})])
    assert not connection.driver.in_transaction
    assert count(connection) == 0
