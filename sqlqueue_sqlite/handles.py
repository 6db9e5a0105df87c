"""sqlite3 connections of our own: opened one way, told apart after a fork, and never closed in a child."""

import os
import sqlite3
from typing import Any
from weakref import WeakSet

from sqlqueue.errors import SchemaError, Unsupported
from sqlqueue_sqlite.forks import fork_gate
from sqlqueue_sqlite.location import Location
from sqlqueue_sqlite.trouble import READONLY, primary

OLDEST = (3, 35, 0)  # RETURNING
OLDEST_IN_MEMORY = (3, 36, 0)  # a memory database that connections share without a shared cache

#: Statements that one connection keeps compiled: a queue has about ten, and a broker may serve many.
CACHED_STATEMENTS = 256

# An UPDATE … RETURNING over several ranges keeps its rollback and its rows in temporary tables. As files, which is what
# SQLite makes them, opening them took 170 of 190 µs of a claim that found nothing; ours are small.
TEMPORARY_IN_MEMORY = "PRAGMA temp_store = MEMORY"

JOURNAL = "PRAGMA journal_mode"
USE_WAL = "PRAGMA journal_mode = WAL"

VERSION = sqlite3.sqlite_version_info


class Handle(sqlite3.Connection):
    """A connection that can be referred to weakly."""


_open: "WeakSet[Handle]" = WeakSet()

# In a child, the parent's connections: closing one there would drop locks and files that the parent relies on.
_inherited: list[Any] = []


def _after_fork() -> None:
    _inherited.extend(_open)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def check_version(location: Location) -> None:
    """Raise `Unsupported` where the SQLite that this Python was built with is too old."""
    needed = OLDEST_IN_MEMORY if location.memory else OLDEST
    if needed > VERSION:
        what = "a database in memory" if location.memory else "sqlqueue"
        raise Unsupported(
            f"SQLite {'.'.join(map(str, VERSION))} is too old: {what} needs {'.'.join(map(str, needed))}; "
            "use a Python that was built with a newer one"
        )


def open_handle(location: Location) -> Handle:
    """A connection in autocommit mode, for any thread, that never waits for a lock by itself.

    Raises `Unsupported`; `SchemaError` where no file can be there; the driver's error, with the path.
    """
    check_version(location)
    obstacle = location.obstacle()
    if obstacle:
        raise SchemaError(f"cannot open the SQLite database {location.shown}: {obstacle}")
    with fork_gate:
        try:
            handle = sqlite3.connect(
                location.name,
                timeout=0,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=CACHED_STATEMENTS,
                uri=location.uri,
                factory=Handle,
            )
        except sqlite3.Error as error:
            raise named(error, location) from None
        _open.add(handle)
        handle.execute(TEMPORARY_IN_MEMORY)
    return handle


def close_handle(handle: Handle) -> None:
    """Close a connection that this process opened."""
    with fork_gate:
        _open.discard(handle)
        handle.close()


def named(error: sqlite3.Error, location: Location) -> sqlite3.Error:
    """The driver's error, its message followed by the database's path; SQLite itself never says it."""
    text = str(error)
    if location.shown not in text:
        error.args = (f"{text}: {location.shown}", *error.args[1:])
    return error


def use_wal(handle: Handle) -> bool:
    """Switch the database to write-ahead logging, so that readers and the writer do not wait for each other.

    False where it cannot be, such as in memory or in a file that can only be read. Raises the driver's error, BUSY
    for one.
    """
    try:
        return any(_journal(handle, pragma) == "wal" for pragma in (JOURNAL, USE_WAL))
    except sqlite3.OperationalError as error:
        if primary(error) != READONLY:
            raise
        return False


def _journal(handle: Handle, pragma: str) -> str:
    # All of the rows: a statement left half way holds a lock.
    with fork_gate:
        return str(handle.execute(pragma).fetchall()[0][0])
