"""A pool's connection: every run is a transaction of its own, and waits for the write lock within bounds."""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from sqlqueue.dialect import Row
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Call, Statement
from sqlqueue_sqlite.forks import fork_gate
from sqlqueue_sqlite.gate import Gate
from sqlqueue_sqlite.handles import Handle
from sqlqueue_sqlite.patience import Patience, patiently
from sqlqueue_sqlite.prepared import execute_all, insert_all, is_one_execution
from sqlqueue_sqlite.trouble import is_spoiled, is_undecodable

T = TypeVar("T")

SYNCHRONOUS = {True: "PRAGMA synchronous = FULL", False: "PRAGMA synchronous = NORMAL"}

# The value of `Connection.autocommit` (Python 3.12) that leaves transactions to `isolation_level`.
LEGACY = -1


def text_or_bytes(value: bytes) -> str | bytes:
    """TEXT that is no UTF-8 comes as bytes, so that one such row does not keep all others from being read."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


class PooledConnection:
    """One of the pool's connections.

    `gate` is the pool's lock for writers: threads of one process queue on it rather than look for SQLite's lock
    again and again. `wal`: the database has a write-ahead log, where a commit that need not be durable leaves
    out the fsync; the next durable one brings it to the disk as well.
    """

    def __init__(self, handle: Handle, *, gate: Gate, seconds: float, wal: bool) -> None:
        self.driver = handle
        self.spoiled = False
        self._cursor = handle.cursor()
        self._text_factory: Any = handle.text_factory
        self._gate = gate
        self._seconds = seconds
        self._wal = wal
        self._durable: bool | None = None

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        """Run the calls in one transaction; calls that only read take no write lock."""
        work = partial(execute_all, self._cursor, calls)
        if any(call.statement.writes for call in calls):
            return self._write(work, durable)
        if is_one_execution(calls):
            return self._try(work, Patience(self._seconds))
        return self._try(partial(self._transaction, "BEGIN", work), Patience(self._seconds))

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
        # A list: whoever makes the rows may take his time, and would hold the write lock meanwhile.
        return self._write(partial(insert_all, self._cursor, insert, list(rows), then), durable=True)

    def close(self) -> None:
        """Have the pool close it when it comes back: whoever borrowed it may still be inside."""
        self.spoiled = True

    @property
    def closed(self) -> bool:
        return self.spoiled

    def restore(self) -> bool:
        """Make the connection as it came, whatever its borrower did; False where it cannot be lent again."""
        if self.spoiled:
            return False
        try:
            if self.driver.in_transaction:
                self._roll_back()
        except sqlite3.ProgrammingError:  # its borrower closed it
            return False
        self._set_back()
        self._set_back_when_idle()
        return not self.spoiled

    def _set_back(self) -> None:
        """What a borrower may have set on the connection: our cursor reads by it as well."""
        driver: Any = self.driver
        driver.row_factory, driver.text_factory = None, self._text_factory
        if getattr(driver, "autocommit", LEGACY) != LEGACY:
            driver.autocommit = LEGACY

    def _set_back_when_idle(self) -> None:
        """In a transaction it would commit that."""
        if self.driver.isolation_level is not None:
            self.driver.isolation_level = None

    def _write(self, work: Callable[[], T], durable: bool) -> T:
        patience = Patience(self._seconds)
        entered = self._gate.enter(self._seconds)
        # One who waited in vain tries all the same: SQLite's own error then says that the database is locked.
        try:
            self._set_durable(durable)
            return self._try(partial(self._transaction, "BEGIN IMMEDIATE", work), patience)
        finally:
            if entered:
                self._gate.leave()

    def _set_durable(self, durable: bool) -> None:
        durable = durable or not self._wal
        if durable is not self._durable:
            with fork_gate:
                self._cursor.execute(SYNCHRONOUS[durable])
            self._durable = durable

    def _transaction(self, begin: str, work: Callable[[], T]) -> T:
        self._cursor.execute(begin)
        result = work()
        self._cursor.execute("COMMIT")
        return result

    def _try(self, attempt: Callable[[], T], patience: Patience) -> T:
        """Attempt until it works, is locked out for too long, or fails otherwise; nothing is left open."""
        try:
            return patiently(partial(self._once, attempt), patience)
        except sqlite3.Error as error:
            if not is_undecodable(error) or self.driver.text_factory is text_or_bytes:
                self.spoiled = self.spoiled or is_spoiled(error)
                raise
        self.driver.text_factory = self._text_factory = text_or_bytes
        return self._try(attempt, patience)

    def _once(self, attempt: Callable[[], T]) -> T:
        done = False
        with fork_gate:
            try:
                result = attempt()
                done = True
                return result
            finally:
                if not done:
                    self._roll_back()

    def _roll_back(self) -> None:
        try:
            if self.driver.in_transaction:
                self.driver.execute("ROLLBACK")
        except sqlite3.Error:
            self.spoiled = True
