"""The broker's connections to one database: few, opened when needed, lent one at a time, the last used first."""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlqueue.dialect import Connection, PoolSettings
from sqlqueue_sqlite.gate import Gate
from sqlqueue_sqlite.handles import Handle, close_handle, named, open_handle, use_wal
from sqlqueue_sqlite.location import Location
from sqlqueue_sqlite.locks import FileLocks
from sqlqueue_sqlite.patience import Patience, patiently
from sqlqueue_sqlite.session import SessionConnection
from sqlqueue_sqlite.trouble import PoolClosedError, PoolTimeoutError

#: Seconds that a borrower waits unless he says otherwise.
TIMEOUT = 30.0


class SQLitePool:
    """At most `size` connections. It belongs to the process that made it; a child opens a pool of its own."""

    def __init__(self, location: Location, settings: PoolSettings) -> None:
        self._location = location
        self._settings = settings
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._idle: list[SessionConnection] = []
        self._opened = 0
        self._closed = False
        self._gate = Gate()
        self._locks = FileLocks(location)
        self._keeper: Handle | None = None  # a database in memory lives while one connection is open

    @property
    def size(self) -> int:
        return self._settings.size

    @property
    def key_locks(self) -> FileLocks:
        """One object for all, so that they exclude each other."""
        return self._locks

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
            close_handle(opened.driver)

    def close(self) -> None:
        """Close the connections, those that are lent when they come back. In a forked process: nothing."""
        if os.getpid() != self._pid:
            return
        with self._changed:  # decided: nobody is lent one any more
            self._closed = True
            idle, self._idle = self._idle, []
            self._opened -= len(idle)
            keeper, self._keeper = self._keeper, None
            self._changed.notify_all()
        self._locks.close()
        for connection in idle:
            close_handle(connection.driver)
        if keeper is not None:
            close_handle(keeper)

    def _take(self, timeout: float) -> SessionConnection:
        ends = time.monotonic() + timeout
        with self._changed:  # decided: who gets the idle connection, and who may open one
            while True:
                self._check_open()
                if self._idle:
                    return self._idle.pop()
                if self._opened < self.size:
                    self._opened += 1
                    break
                if not self._changed.wait(max(0.0, ends - time.monotonic())) and time.monotonic() >= ends:
                    raise self._timed_out(timeout)
        return self._open_or_forget()

    def _check_open(self) -> None:
        if self._closed:
            raise PoolClosedError(f"the pool of the SQLite database {self._location.shown} was closed")
        if os.getpid() != self._pid:
            raise PoolClosedError(
                f"this pool of the SQLite database {self._location.shown} belongs to process {self._pid}, from which "
                f"this one was forked; open a pool here"
            )

    def _timed_out(self, timeout: float) -> PoolTimeoutError:
        return PoolTimeoutError(
            f"all {self.size} connections to the SQLite database {self._location.shown} were in use for {timeout:g} s; "
            "raise pool_size, or hold connections for shorter"
        )

    def _open_or_forget(self) -> SessionConnection:
        opened = None
        try:
            opened = self._open()
        finally:
            if opened is None:
                with self._changed:  # decided: the place goes to whoever waits
                    self._opened -= 1
                    self._changed.notify()
        return opened

    def _open(self) -> SessionConnection:
        self._keep()
        handle = open_handle(self._location)
        seconds = self._settings.statement_timeout
        ready = False
        try:
            wal = False if self._location.memory else patiently(lambda: use_wal(handle), Patience(seconds))
            ready = True
        except sqlite3.Error as error:
            raise named(error, self._location) from None
        finally:
            if not ready:
                close_handle(handle)
        return SessionConnection(handle, gate=self._gate, seconds=seconds, wal=wal)

    def _keep(self) -> None:
        if not self._lacks_keeper():
            return
        keeper = open_handle(self._location)
        with self._changed:  # decided: which of two that open at once stays
            stays = self._lacks_keeper()
            if stays:
                self._keeper = keeper
        if not stays:
            close_handle(keeper)

    def _lacks_keeper(self) -> bool:
        return self._location.memory and self._keeper is None and not self._closed

    def _give_back(self, connection: SessionConnection) -> None:
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
            close_handle(connection.driver)
