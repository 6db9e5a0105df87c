"""A pool's connection. Each run is a transaction of its own; a transactional delivery's lasts from claim to settlement.

A transaction that writes has SQLite's one write lock, so nobody else writes meanwhile, here or in another process.
"""

import random
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from sqlqueue.connection import CLOSED, ENDED, IN_USE, AfterCommit, TakenBack
from sqlqueue.dialect import Row
from sqlqueue.errors import TransactionError
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Begin, Call, Commit, Savepoint, Statement, Step
from sqlqueue_sqlite.database import Driver, fork_lock, in_use_elsewhere
from sqlqueue_sqlite.prepared import execute, insert_all
from sqlqueue_sqlite.trouble import is_busy, is_spoiled, is_undecodable

T = TypeVar("T")

BEGIN, BEGIN_IMMEDIATE, COMMIT, ROLLBACK = "BEGIN", "BEGIN IMMEDIATE", "COMMIT", "ROLLBACK"

SYNCHRONOUS = {True: "PRAGMA synchronous = FULL", False: "PRAGMA synchronous = NORMAL"}

NO_SAVEPOINT = "no such savepoint: sqlqueue_handler"

# The value of `Connection.autocommit` (Python 3.12) that leaves transactions to `isolation_level`.
LEGACY = -1

#: Seconds between two attempts at a locked database: a short transaction is over by the first.
FIRST_PAUSE, LONGEST_PAUSE = 0.0005, 0.02

#: Seconds of a handler's transaction after which other processes have waited for long.
LONG_TRANSACTION = 0.2

#: Seconds that are theirs then: each tries at least once. They could hardly meet the moment between two transactions
#: that follow each other, and their leases would end, whose extensions wait here.
PAUSE_FOR_OTHERS = 1.25 * LONGEST_PAUSE

# Nobody sets it: its wait is a pause that needs no clock.
_NEVER = threading.Event()


def text_or_bytes(value: bytes) -> str | bytes:
    """TEXT that is no UTF-8 comes as bytes, so that one such row does not keep all others from being read."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def uneven(seconds: float) -> float:
    """Between half of `seconds` and all of them, so that those who wait do not march in step."""
    return random.uniform(0.5, 1.0) * seconds  # noqa: S311 - nobody gains by guessing it


def retry_while_locked(attempt: Callable[[], T], ends: float) -> T:
    """What `attempt` returns, retried while the database is locked, until `ends` on the monotonic clock; then its
    error. SQLite's write lock has no queue, so the pauses between two attempts are short and uneven."""
    pause = FIRST_PAUSE
    while True:
        try:
            return attempt()
        except sqlite3.Error as error:
            left = ends - monotonic()
            if left <= 0 or not is_busy(error):
                raise
        _NEVER.wait(min(uneven(pause), left))
        pause = min(pause * 1.5, LONGEST_PAUSE)


class WriterLock:
    """One of the pool's threads writes at a time: they wait here rather than try SQLite's lock again and again. Other
    processes, which have no part in this lock, get their chance when a handler has held it for long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handler: int | None = None
        self._lent_at: float | None = None
        self._others_until = 0.0

    def acquire(self, seconds: float) -> bool:
        """Wait for the lock, for so many seconds; whether it came. Raises `TransactionError` in a handler whose own
        delivery's transaction it would wait for."""
        if self._handler == threading.get_ident():
            raise TransactionError(
                "the database is locked by this handler's own transaction, which a second connection would wait for: "
                "write on delivery.connection, such as enqueue(…, connection=delivery.connection)"
            )
        if not self._lock.acquire(timeout=seconds):
            return False
        theirs = self._others_until - monotonic()
        if theirs > 0:
            _NEVER.wait(theirs)
        return True

    def release(self) -> None:
        if self._lent_at is not None:
            now, lent_at, self._lent_at = monotonic(), self._lent_at, None
            self._others_until = now + PAUSE_FOR_OTHERS if now - lent_at >= LONG_TRANSACTION else 0.0
        self._lock.release()

    def lend(self) -> None:
        """From here on this thread runs a handler, which has the write lock."""
        self._handler, self._lent_at = threading.get_ident(), monotonic()

    def take_back(self) -> None:
        self._handler = None


class SQLiteConnection:
    """One of the pool's connections, which can be lent to a handler.

    `wal`: the database has a write-ahead log, where a commit that need not be durable leaves out the fsync; the next
    durable one brings it to the disk as well. `closed`: its borrower, or an error, made it unfit; the pool closes it
    when it comes back, for whoever borrowed it may still be inside.
    """

    def __init__(self, driver: Driver, *, writer_lock: WriterLock, seconds: float, wal: bool) -> None:
        self.driver = driver
        self.closed = False
        self._cursor = driver.cursor()
        self._text_factory: Any = driver.text_factory
        self._writer_lock = writer_lock
        self._writing = False  # whether this connection has the writer lock
        self._seconds = seconds
        self._wal = wal
        self._durable: bool | None = None
        self._references = 0
        self._kept = False

    # -- runs: a transaction each -----------------------------------------------------------------------------

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        """Run the calls in one transaction; calls that only read take no write lock."""
        work = partial(execute, self._cursor, calls)
        for call in calls:
            if call.statement.writes:
                return self._write(BEGIN_IMMEDIATE, work, durable=durable)
        alone = len(calls) == 1 and not calls[0].statement.given  # a statement of SQLite's is atomic by itself
        return self._attempt("" if alone else BEGIN, work, monotonic() + self._seconds)

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
        return self._write(BEGIN_IMMEDIATE, partial(insert_all, self._cursor, insert, list(rows), then))

    def _write(self, begin: str, work: Callable[[], T], *, durable: bool = True, stay: bool = False) -> T:
        """Do the work with the write lock, which is given back unless it is to `stay`."""
        ends, stays = monotonic() + self._seconds, self._writing
        if not stays:
            # One who waited in vain tries all the same: SQLite's own error then says that the database is locked.
            self._writing = self._writer_lock.acquire(self._seconds)
        try:
            durable = durable or not self._wal
            if durable is not self._durable:
                self._execute(SYNCHRONOUS[durable])
                self._durable = durable
            result = self._attempt(begin, work, ends)
            stays = stays or stay
            return result
        finally:
            if not stays:
                self._release_writer_lock()

    def _attempt(self, begin: str, work: Callable[[], T], ends: float) -> T:
        """Attempt until it works, is locked out for too long, or fails otherwise; nothing is left open."""
        try:
            return retry_while_locked(partial(self._once, begin, work), ends)
        except sqlite3.Error as error:
            if not is_undecodable(error) or self.driver.text_factory is text_or_bytes:
                self.closed = self.closed or is_spoiled(error)
                raise
        self.driver.text_factory = self._text_factory = text_or_bytes
        return self._attempt(begin, work, ends)

    def _once(self, begin: str, work: Callable[[], T]) -> T:
        """The work in a transaction of its own where there is a `begin`."""
        done = False
        if fork_lock.forking:
            fork_lock.wait()
        with fork_lock.own.lock:
            try:
                if begin:
                    self._cursor.execute(begin)
                result = work()
                if begin:
                    self._cursor.execute(COMMIT)
                done = True
                return result
            finally:
                if not done:
                    self._undo()

    def _execute(self, text: str) -> None:
        if fork_lock.forking:
            fork_lock.wait()
        with fork_lock.own.lock:
            self._cursor.execute(text)

    def _undo(self) -> None:
        try:
            if self.driver.in_transaction:
                self.driver.execute(ROLLBACK)
        except sqlite3.Error:
            self.closed = True

    # -- a session: a transaction that lasts, and its handler ------------------------------------------------------

    def send(self, steps: Sequence[Step]) -> list[list[Row]]:
        results: list[list[Row]] = []
        committed = False
        try:
            for step in steps:
                if isinstance(step, Call):
                    results += self._call(step)
                elif isinstance(step, Savepoint):
                    self._execute(step.value)
                elif isinstance(step, Begin):
                    self._begin()
                else:
                    self._end(COMMIT if isinstance(step, Commit) else ROLLBACK)
                    if isinstance(step, Commit):
                        committed = True
                        if step.chain:
                            self._begin()
        except sqlite3.Error as error:
            if committed:
                calls = sum(isinstance(step, Call) for step in steps)
                raise AfterCommit([*results, *([] for _ in range(calls - len(results)))]) from error
            if str(error) == NO_SAVEPOINT:
                raise TransactionError(ENDED) from None
            raise
        return results

    def _begin(self) -> None:
        self._write("", partial(self._cursor.execute, BEGIN_IMMEDIATE), stay=True)

    def _call(self, call: Call) -> list[list[Row]]:
        if not self.driver.in_transaction:
            return self.run([call])
        if fork_lock.forking:
            fork_lock.wait()
        with fork_lock.own.lock:
            return execute(self._cursor, [call])

    def _end(self, text: str) -> None:
        self._execute(text)
        self._set_isolation_back()
        self._release_writer_lock()

    def roll_back(self) -> None:
        self._undo()
        if not self.closed:
            self._set_isolation_back()
        self._release_writer_lock()

    def lend(self, begin: Begin | None) -> Any:
        if begin is not None:
            self._begin()
        self._execute(Savepoint.SET.value)
        self._writer_lock.lend()
        self._references = sys.getrefcount(self.driver)
        return self.driver

    def take_back(self) -> TakenBack:
        """SQLite cannot cut a connection off. One that something still refers to when it goes back is closed, so that
        later use raises."""
        self._writer_lock.take_back()
        try:
            inside = self.driver.in_transaction
        except sqlite3.ProgrammingError:
            self.closed = True
            return TakenBack(CLOSED, last=True)
        self._set_back()
        self._kept = sys.getrefcount(self.driver) > self._references
        if self._kept and in_use_elsewhere(self.driver):
            return TakenBack(IN_USE, last=True)
        return TakenBack(None if inside else ENDED, last=self._kept or not inside)

    # -- what its borrower left ------------------------------------------------------------------------------------

    def close(self) -> None:
        self.closed = True

    def restore(self) -> bool:
        """Make the connection as it came, whatever its borrower did; False where it cannot be lent again."""
        if not self.closed:
            try:
                if self.driver.in_transaction:
                    self._undo()
                self._set_back()
                self._set_isolation_back()
            except sqlite3.ProgrammingError:  # its borrower closed it
                self.closed = True
        self._release_writer_lock()
        return not self.closed and not self._kept

    def _set_back(self) -> None:
        """What a borrower may have set on the connection: our cursor reads by it as well."""
        driver: Any = self.driver
        driver.row_factory, driver.text_factory = None, self._text_factory
        if getattr(driver, "autocommit", LEGACY) != LEGACY:
            driver.autocommit = LEGACY

    def _set_isolation_back(self) -> None:
        """Outside of a transaction: in one it would commit that."""
        if self.driver.isolation_level is not None:
            self.driver.isolation_level = None

    def _release_writer_lock(self) -> None:
        if self._writing:
            self._writing = False
            self._writer_lock.release()
