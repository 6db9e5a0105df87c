"""A caller's own connection: our statements join its transaction, and its settings do not reach them."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from sqlqueue.dialect import Row
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Call, Statement
from sqlqueue_sqlite.connection import LEGACY, text_or_bytes
from sqlqueue_sqlite.database import fork_lock
from sqlqueue_sqlite.prepared import execute, insert_all

T = TypeVar("T")

# What sqlite3 executes before the first INSERT, UPDATE or DELETE, by `isolation_level`.
BEGIN = {
    "": "BEGIN",
    "DEFERRED": "BEGIN DEFERRED",
    "IMMEDIATE": "BEGIN IMMEDIATE",
    "EXCLUSIVE": "BEGIN EXCLUSIVE",
}

SAVEPOINT = "SAVEPOINT sqlqueue"
RELEASE = "RELEASE sqlqueue"
ROLLBACK = "ROLLBACK TO sqlqueue"


class AdoptedConnection:
    """Never commits what the caller began; an autocommit connection's statements are its own, as the caller's are."""

    #: The connection is the caller's to close.
    closed = False

    def __init__(self, driver: sqlite3.Connection) -> None:
        self.driver = driver

    def close(self) -> None:
        """Nothing: the connection is the caller's."""

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        """Run the calls inside the caller's transaction, all or none; the driver's errors pass unchanged."""
        writes = any(call.statement.writes for call in calls)
        alone = len(calls) == 1 and not calls[0].statement.given  # a statement of SQLite's is atomic by itself
        return self._join(lambda cursor: execute(cursor, calls), writes=writes, atomic=alone)

    def insert_many(
        self,
        insert: Statement,
        table: TableSpec,
        columns: Sequence[ColumnSpec],
        rows: Iterable[Row],
        *,
        then: Sequence[Call] = (),
    ) -> int:
        """Insert all rows, encoded and in the order of the insert's parameters, or none."""
        made = list(rows)  # by the caller, whose own connection it still is
        return self._join(lambda cursor: insert_all(cursor, insert, made, then), writes=True, atomic=False)

    def _join(self, work: Callable[[sqlite3.Cursor], T], *, writes: bool, atomic: bool) -> T:
        """Work with a cursor that returns plain rows with text, whatever the caller's factories are."""
        driver = self.driver
        cursor, theirs = driver.cursor(), driver.text_factory
        cursor.row_factory, driver.text_factory = None, text_or_bytes
        try:
            with fork_lock:
                begin = driver.isolation_level if getattr(driver, "autocommit", LEGACY) == LEGACY else None
                if writes and begin is not None and not driver.in_transaction:
                    # sqlite3 would begin by itself, but it does not know an INSERT behind a comment (3.10) or a WITH.
                    cursor.execute(BEGIN[begin.upper()])
                return work(cursor) if atomic else _all_or_none(cursor, work)
        finally:
            driver.text_factory = theirs
            cursor.close()


def _all_or_none(cursor: sqlite3.Cursor, work: Callable[[sqlite3.Cursor], T]) -> T:
    cursor.execute(SAVEPOINT)
    done = False
    try:
        result = work(cursor)
        done = True
        return result
    finally:
        # An error may have ended the whole transaction, and the savepoint with it (a full disk does).
        if not done and cursor.connection.in_transaction:
            cursor.execute(ROLLBACK)
        if cursor.connection.in_transaction:
            cursor.execute(RELEASE)
