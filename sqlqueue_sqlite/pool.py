"""The broker's connections to one database: few, opened when needed, lent one at a time, the last used first."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic

from sqlqueue.dialect import Connection, PoolSettings
from sqlqueue_sqlite.connection import SQLiteConnection, WriterLock, retry_while_locked
from sqlqueue_sqlite.database import Driver, Location, connect, disconnect, use_wal, with_path
from sqlqueue_sqlite.locks import FileLocks
from sqlqueue_sqlite.trouble import PoolClosedError, PoolTimeoutError

#: Seconds that a borrower waits unless he says otherwise.
TIMEOUT = 30.0


class SQLitePool:
    """At most `size` connections. It belongs to the process that made it; a child opens a pool of its own."""

    def __init__(self, location: Location, settings: PoolSettings) -> None:
        self.size = settings.size
        #: One object for all, so that they exclude each other.
        self.key_locks = FileLocks(location)
        self._location = location
        self._statement_timeout = settings.statement_timeout
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._idle: list[SQLiteConnection] = []
        self._opened = 0
        self._closed = False
        self._writer_lock = WriterLock()
        self._memory: Driver | None = None  # a database in memory lives while one connection is open

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[Connection]:
        """Lend a connection. Waits `timeout` seconds, 30 unless given, then raises `PoolTimeoutError`.

        Raises `PoolClosedError` once the pool is closed, and in a process forked from the pool's. The first use of a
        connection opens it: the driver's error, `SchemaError` or `Unsupported` where that fails.
        """
        lent = self._take(TIMEOUT if timeout is None else timeout)
        try:
            yield lent
        finally:
            self._give_back(lent)

    def probe(self) -> None:
        """Open a connection now, if none is open yet; raises why that fails."""
        with self.connection():
            pass

    @contextmanager
    def direct(self) -> Iterator[Connection]:
        """A connection that does not count; opened and closed here."""
        opened = self._open()
        try:
            yield opened
        finally:
            disconnect(opened.driver)

    def close(self) -> None:
        """Close the connections, those that are lent when they come back. In a forked process: nothing."""
        if os.getpid() != self._pid:
            return
        with self._changed:  # decided: nobody is lent one any more
            self._closed = True
            drivers = [connection.driver for connection in self._idle]
            self._idle, self._opened = [], self._opened - len(drivers)
            memory, self._memory = self._memory, None
            self._changed.notify_all()
        self.key_locks.close()
        for driver in drivers if memory is None else [*drivers, memory]:
            disconnect(driver)

    def _take(self, timeout: float) -> SQLiteConnection:
        ends = monotonic() + timeout
        with self._changed:  # decided: who gets the idle connection, and who may open one
            while True:
                if self._closed or os.getpid() != self._pid:
                    raise self._refusal()
                if self._idle:
                    return self._idle.pop()
                if self._opened < self.size:
                    self._opened += 1
                    break
                if not self._changed.wait(max(0.0, ends - monotonic())) and monotonic() >= ends:
                    raise PoolTimeoutError(
                        f"all {self.size} connections to the SQLite database {self._location.shown} were in use for "
                        f"{timeout:g} s; raise pool_size, or hold connections for shorter"
                    )
        return self._open_or_forget()

    def _refusal(self) -> PoolClosedError:
        if self._closed:
            return PoolClosedError(f"the pool of the SQLite database {self._location.shown} was closed")
        return PoolClosedError(
            f"this pool of the SQLite database {self._location.shown} belongs to process {self._pid}, from which this "
            "one was forked; open a pool here"
        )

    def _open_or_forget(self) -> SQLiteConnection:
        opened = None
        try:
            opened = self._open()
        finally:
            if opened is None:
                with self._changed:  # decided: the place goes to whoever waits
                    self._opened -= 1
                    self._changed.notify()
        return opened

    def _open(self) -> SQLiteConnection:
        memory, seconds = self._location.memory, self._statement_timeout
        if memory and self._memory is None:
            self._keep_memory()
        driver, ready = connect(self._location), False
        try:
            wal = False if memory else retry_while_locked(partial(use_wal, driver), monotonic() + seconds)
            ready = True
        except sqlite3.Error as error:
            raise with_path(error, self._location) from None
        finally:
            if not ready:
                disconnect(driver)
        return SQLiteConnection(driver, writer_lock=self._writer_lock, seconds=seconds, wal=wal)

    def _keep_memory(self) -> None:
        driver = connect(self._location)
        with self._changed:  # decided: which of two that open at once stays
            stays = self._memory is None and not self._closed
            if stays:
                self._memory = driver
        if not stays:
            disconnect(driver)

    def _give_back(self, connection: SQLiteConnection) -> None:
        if os.getpid() != self._pid:
            return  # lent before a fork: the parent's
        fit = connection.restore()
        with self._changed:  # decided: lent again, or closed and its place free
            fit = fit and not self._closed
            if fit:
                self._idle.append(connection)
            else:
                self._opened -= 1
            self._changed.notify()
        if not fit:
            disconnect(connection.driver)
