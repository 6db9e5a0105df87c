"""A thread that sees other connections' commits by `PRAGMA data_version`, without reading a table."""

import logging
import sqlite3
import threading
from collections.abc import Callable

from sqlqueue.dialect import Hint
from sqlqueue.errors import SQLQueueError
from sqlqueue_sqlite.connection import uneven
from sqlqueue_sqlite.database import Driver, Location, connect, disconnect, fork_lock
from sqlqueue_sqlite.trouble import is_busy

log = logging.getLogger(__name__)

#: Seconds between two queries of the version. One costs 3 µs; every 5 ms that is 2 % of a core at most.
WATCH_INTERVAL = 0.005

FIRST_PAUSE = 0.05  # seconds after trouble, doubling
LONGEST_PAUSE = 5.0

DATA_VERSION = "PRAGMA data_version"


class DataVersionWaker:
    """Calls `wake(Hint())` soon after each commit to the database; whose, and to which table, it does not know.

    It wakes once when it has connected, for what was committed before. Trouble ends nothing: it
    connects anew, with growing pauses, and logs the loss once and the return once.
    """

    #: It has a connection of its own.
    borrows = False

    def __init__(
        self, location: Location, wake: Callable[[Hint], None], *, watch_interval: float = WATCH_INTERVAL
    ) -> None:
        self._location = location.existing()  # whoever only watches creates no file
        self._wake = wake
        self._interval = watch_interval
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sqlqueue-sqlite-waker", daemon=True)
        self._driver: Driver | None = None
        self._seen: int | None = None
        self._failures = 0

    @property
    def certain(self) -> bool:
        """Whether it is connected: then no commit escapes it."""
        return self._driver is not None and not self._failures

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close its connection; both are done on return, but in the thread's own callback."""
        self._stopping.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def step(self) -> float:
        """Query the version once; seconds until the next time."""
        try:
            if self._driver is None:
                self._driver = connect(self._location)
            if fork_lock.forking:
                fork_lock.wait()
            with fork_lock.own.lock:
                # All of the rows: a statement left half way holds a lock.
                version = self._driver.execute(DATA_VERSION).fetchall()[0][0]
            if version != self._seen:
                self._seen = version
                self._wake(Hint())
        except (sqlite3.Error, SQLQueueError) as error:
            if is_busy(error):  # a database in memory is locked while somebody writes
                return self._interval
            return self._trouble(error)
        if self._failures:
            self._failures = 0
            log.info("the watch of the SQLite database %s has recovered", self._location.shown)
        return self._interval

    def _trouble(self, error: Exception) -> float:
        self._disconnect()
        self._failures += 1
        if self._failures == 1:
            log.warning("cannot watch the SQLite database %s, trying on: %s", self._location.shown, error)
        doubled: float = FIRST_PAUSE * 2 ** min(self._failures, 16)
        return uneven(min(doubled, LONGEST_PAUSE))

    def _disconnect(self) -> None:
        driver, self._driver, self._seen = self._driver, None, None
        if driver is not None:
            disconnect(driver)

    def _watch(self) -> None:
        pause = 0.0
        try:
            while not self._stopping.wait(pause):
                try:
                    pause = self.step()
                except Exception as error:  # noqa: BLE001 - the loop's edge: the callback's trouble ends no watching
                    pause = self._trouble(error)
        finally:
            self._disconnect()
