"""The database: where it is, how connections to it are opened and closed, and what a fork must not do to them."""

import os
import sqlite3
import sys
import threading
from pathlib import Path
from time import monotonic
from types import FrameType, TracebackType
from typing import Any
from urllib.parse import unquote
from uuid import uuid4
from weakref import WeakSet

import attrs

from sqlqueue.errors import DeclarationError, SchemaError, Unsupported
from sqlqueue_sqlite.trouble import READONLY, primary

SCHEME = "sqlite:"

SIDE_FILE = "-sqlqueue-locks"

FORMS = "sqlite:///file.db (relative), sqlite:////absolute/path.db, or sqlite:// (in memory)"

OLDEST = (3, 35, 0)  # RETURNING
OLDEST_IN_MEMORY = (3, 36, 0)  # a memory database that connections share without a shared cache
VERSION = sqlite3.sqlite_version_info

#: Statements that one connection keeps compiled: a queue has about ten, and a broker may serve many.
CACHED_STATEMENTS = 256

# An UPDATE … RETURNING over several ranges keeps its rollback and its rows in temporary tables. As files, which is what
# SQLite makes them, opening them took 170 of 190 µs of a claim that found nothing; ours are small.
TEMPORARY_IN_MEMORY = "PRAGMA temp_store = MEMORY"

JOURNAL = "PRAGMA journal_mode"
USE_WAL = "PRAGMA journal_mode = WAL"

#: Seconds that a fork waits at most: a child that may hang is better than a parent that does.
FORK_TIMEOUT = 1.0


@attrs.frozen
class Location:
    """`name` is what sqlite3 opens, as a URI where `uri`; `shown` is for people to read."""

    name: str
    shown: str
    memory: bool = False
    uri: bool = False

    @classmethod
    def file(cls, path: str) -> "Location":
        """A file. A relative path becomes absolute now, so that a later change of directory moves nothing."""
        absolute = os.path.abspath(path)
        return cls(name=absolute, shown=absolute)

    @classmethod
    def in_memory(cls) -> "Location":
        """A database of its own, which lives while one connection to it is open."""
        return cls(name=f"file:/sqlqueue-{uuid4().hex}?vfs=memdb", shown="sqlite:// (in memory)", memory=True, uri=True)

    def existing(self) -> "Location":
        """The same, refused where the file does not exist rather than created."""
        return self if self.uri else attrs.evolve(self, name=f"{Path(self.name).as_uri()}?mode=rw", uri=True)

    @property
    def side_file(self) -> str:
        """The path of the file whose locks hold rows: beside the real file, whatever links lead there."""
        return os.path.realpath(self.shown) + SIDE_FILE

    def check(self) -> None:
        """Raise `Unsupported` where this Python's SQLite is too old."""
        needed = OLDEST_IN_MEMORY if self.memory else OLDEST
        if needed > VERSION:
            what = "a database in memory" if self.memory else "sqlqueue"
            raise Unsupported(
                f"SQLite {'.'.join(map(str, VERSION))} is too old: {what} needs {'.'.join(map(str, needed))}; "
                "use a Python that was built with a newer one"
            )

    def obstacle(self) -> str | None:
        """Why no file can be there, as far as directories tell; None where one may be."""
        if self.uri:
            return None
        directory = os.path.dirname(self.name)
        if not os.path.isdir(directory):
            return f"there is no directory {directory}; create it, or correct the URL"
        return "it is a directory; name a file in it" if os.path.isdir(self.name) else None


def parse(url: str) -> Location:
    """The location that a URL names; a `DeclarationError` that says which forms there are."""
    rest = url[len(SCHEME) :]
    if rest == "//":
        return Location.in_memory()
    path = rest[len("///") :]
    if not rest.startswith("///") or not path:
        raise _refused(url, "no file is named behind three slashes")
    if set(path) & set("?#"):
        raise _refused(url, "it takes no parameters; in a file's name write ? as %3F and # as %23")
    decoded = unquote(path)
    if "\0" in decoded:
        raise _refused(url, "the path holds a NUL character")
    if decoded == ":memory:":
        raise _refused(url, "a database in memory is sqlite://")
    return Location.file(decoded)


def _refused(url: str, why: str) -> DeclarationError:
    return DeclarationError(f"database URL {url!r}: {why}; the forms are {FORMS}")


class ForkLock:
    """Held by whoever calls into SQLite: no fork happens meanwhile.

    SQLite has locks of its own, such as the one around its memory. A fork copies them as they are, so a child whose
    parent's thread was inside at that moment would wait for ever in its first call (seen within a hundred forks).

    Each thread has a lock of its own, which it may hold several times; a fork takes those of all threads. Where a call
    of Python's costs too much, take it without one: `if lock.forking: lock.wait()`, then `with lock.own.lock`.
    """

    def __init__(self) -> None:
        self.forking = False
        self._mutex = threading.RLock()  # held through a fork: nobody begins another, and no thread's lock is new
        self._locks: WeakSet[Any] = WeakSet()
        self._taken: list[Any] = []
        self.own = _OfThread(self)

    def __enter__(self) -> None:
        if self.forking:
            self.wait()
        self.own.lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.own.lock.release()

    def wait(self) -> None:
        """Until the fork is done. A thread that hardly leaves SQLite would else be back inside before the fork."""
        with self._mutex:
            pass

    def new_lock(self) -> Any:
        with self._mutex:
            lock = threading.RLock()
            self._locks.add(lock)
            return lock

    def before_fork(self) -> None:
        self._mutex.acquire()
        self.forking = True
        ends = monotonic() + FORK_TIMEOUT
        self._taken = [one for one in list(self._locks) if one.acquire(timeout=max(0.0, ends - monotonic()))]

    def after_fork(self) -> None:
        for lock in self._taken:
            lock.release()
        self._taken, self.forking = [], False
        self._mutex.release()

    def after_fork_in_child(self) -> None:
        self._locks = WeakSet([self.own.lock])  # the other threads are not here
        self.after_fork()


class _OfThread(threading.local):
    """The current thread's lock, made when the thread first asks."""

    def __init__(self, every: ForkLock) -> None:
        self.lock = every.new_lock()


fork_lock = ForkLock()


class Driver(sqlite3.Connection):
    """A connection that can be referred to weakly."""


_open: "WeakSet[Driver]" = WeakSet()

# In a child, the parent's connections: closing one there would drop locks and files that the parent relies on.
_inherited: list[Any] = []


def _after_fork_in_child() -> None:
    fork_lock.after_fork_in_child()
    _inherited.extend(_open)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=fork_lock.before_fork, after_in_parent=fork_lock.after_fork, after_in_child=_after_fork_in_child
    )


def connect(location: Location) -> Driver:
    """A connection in autocommit mode, for any thread, that never waits for a lock by itself.

    Raises `Unsupported`; `SchemaError` where no file can be there; the driver's error, with the path.
    """
    location.check()
    obstacle = location.obstacle()
    if obstacle:
        raise SchemaError(f"cannot open the SQLite database {location.shown}: {obstacle}")
    with fork_lock:
        try:
            driver = sqlite3.connect(
                location.name,
                timeout=0,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=CACHED_STATEMENTS,
                uri=location.uri,
                factory=Driver,
            )
        except sqlite3.Error as error:
            raise with_path(error, location) from None
        _open.add(driver)
        driver.execute(TEMPORARY_IN_MEMORY)
    return driver


def disconnect(driver: Driver) -> None:
    """Close a connection that this process opened."""
    with fork_lock:
        _open.discard(driver)
        driver.close()


def with_path(error: sqlite3.Error, location: Location) -> sqlite3.Error:
    """The driver's error, its message followed by the database's path; SQLite itself never says it."""
    text = str(error)
    if location.shown not in text:
        error.args = (f"{text}: {location.shown}", *error.args[1:])
    return error


def use_wal(driver: Driver) -> bool:
    """Switch the database to write-ahead logging, so that readers and the writer do not wait for each other.

    False where it cannot be, such as in memory or in a file that can only be read. Raises the driver's error, BUSY
    for one.
    """
    try:
        with fork_lock:
            # All of the rows: a statement left half way holds a lock.
            return any(driver.execute(pragma).fetchall()[0][0] == "wal" for pragma in (JOURNAL, USE_WAL))
    except sqlite3.OperationalError as error:
        if primary(error) != READONLY:
            raise
        return False


def in_use_elsewhere(driver: sqlite3.Connection) -> bool:
    """Whether a function that another thread is in holds the connection, or a cursor of it, in a variable of its own or
    of an object in one. What is merely kept, such as by an error in a log, is not used."""
    mine = threading.get_ident()
    for thread, frame in sys._current_frames().items():
        function: FrameType | None = None if thread == mine else frame
        while function is not None:
            if any(_holds(value, driver) for value in tuple(function.f_locals.values())):
                return True
            function = function.f_back
    return False


def _holds(value: object, driver: sqlite3.Connection) -> bool:
    try:
        inside = (value, *tuple(getattr(value, "__dict__", {}).values()))
    except Exception:  # noqa: BLE001 - another thread's variable, such as a proxy, may raise anything
        return False
    return any(one is driver or (isinstance(one, sqlite3.Cursor) and one.connection is driver) for one in inside)
