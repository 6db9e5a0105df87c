"""What errors mean to a loop, with the codes of Python 3.11 and by the messages of 3.10."""

import sqlite3
from pathlib import Path

import pytest

from sqlqueue.dialect import Connection, Trouble
from sqlqueue.errors import SchemaError
from sqlqueue_sqlite import trouble
from sqlqueue_sqlite.dialect import SQLiteDialect
from tests.support.database import Database

LOST, TRANSIENT, PERMANENT = Trouble.LOST, Trouble.TRANSIENT, Trouble.PERMANENT


class Coded(sqlite3.OperationalError):
    """An error with a code, on any Python."""

    def __init__(self, code: int) -> None:
        super().__init__("some words")
        self.sqlite_errorcode = code


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (5, TRANSIENT),  # BUSY
        (5 | 2 << 8, TRANSIENT),  # BUSY_SNAPSHOT
        (6, TRANSIENT),  # LOCKED
        (9, TRANSIENT),  # INTERRUPT
        (10 | 3 << 8, TRANSIENT),  # IOERR_WRITE
        (13, TRANSIENT),  # FULL
        (15, TRANSIENT),  # PROTOCOL
        (14, LOST),  # CANTOPEN
        (8 | 4 << 8, LOST),  # READONLY_DBMOVED
        (8, PERMANENT),  # READONLY
        (11, PERMANENT),  # CORRUPT
        (1, PERMANENT),  # ERROR
    ],
)
def test_codes_have_meanings(dialect: SQLiteDialect, code: int, meaning: Trouble) -> None:
    assert dialect.classify(Coded(code)) is meaning


@pytest.mark.parametrize(
    ("message", "meaning"),
    [
        ("database is locked", TRANSIENT),
        ("database table is locked: jobs", TRANSIENT),
        ("disk I/O error", TRANSIENT),
        ("database or disk is full", TRANSIENT),
        ("unable to open database file: /srv/shop.db", LOST),
        ("attempt to write a readonly database", PERMANENT),
        ("no such table: jobs", PERMANENT),
    ],
)
def test_messages_have_the_same_meanings(dialect: SQLiteDialect, message: str, meaning: Trouble) -> None:
    assert dialect.classify(sqlite3.OperationalError(message)) is meaning


@pytest.mark.parametrize("error", [SchemaError("x"), ValueError("database is locked"), OverflowError(), KeyError()])
def test_what_is_not_the_drivers_is_permanent(dialect: SQLiteDialect, error: Exception) -> None:
    assert dialect.classify(error) is PERMANENT


def failing(database: Database, sql: str) -> sqlite3.Error:
    driver = database.connect()
    driver.execute("PRAGMA busy_timeout = 0")
    with pytest.raises(sqlite3.Error) as raised:
        driver.execute(sql)
    driver.close()
    return raised.value


@pytest.mark.parametrize(
    ("sql", "meaning"),
    [
        ("INSERT INTO jobs (payload) VALUES (NULL)", PERMANENT),
        ("SELECT * FROM missing", PERMANENT),
        ("SELECT missing FROM jobs", PERMANENT),
        ("ATTACH '/missing/directory/x.db' AS other", LOST),
    ],
)
def test_real_errors_have_meanings(
    connection: Connection, dialect: SQLiteDialect, sqlite_database: Database, sql: str, meaning: Trouble
) -> None:
    assert dialect.classify(failing(sqlite_database, sql)) is meaning


def test_a_locked_database_is_transient(
    connection: Connection, dialect: SQLiteDialect, sqlite_database: Database
) -> None:
    connection.driver.execute("BEGIN IMMEDIATE")
    assert dialect.classify(failing(sqlite_database, "BEGIN IMMEDIATE")) is TRANSIENT


def test_a_full_database_is_transient(connection: Connection, dialect: SQLiteDialect) -> None:
    connection.driver.execute("PRAGMA max_page_count = 1").fetchall()
    with pytest.raises(sqlite3.OperationalError) as raised:
        connection.driver.execute("INSERT INTO jobs (payload) VALUES (zeroblob(1000000))")
    assert dialect.classify(raised.value) is TRANSIENT


@pytest.mark.parametrize(
    ("code", "spoiled"), [(10, True), (14, True), (26, True), (8 | 4 << 8, True), (5, False), (1, False)]
)
def test_a_connection_that_failed_oddly_is_spoiled(code: int, spoiled: bool) -> None:
    assert trouble.is_spoiled(Coded(code)) is spoiled


def test_a_closed_connection_is_lost(dialect: SQLiteDialect, path: Path) -> None:
    driver = sqlite3.connect(path)
    driver.close()
    with pytest.raises(sqlite3.ProgrammingError) as raised:
        driver.execute("SELECT 1")
    assert dialect.classify(raised.value) is LOST
    assert trouble.is_spoiled(raised.value)
