"""What an error of sqlite3, or of our pool, means to a loop that could try again."""

import sqlite3

from sqlqueue.dialect import Trouble
from sqlqueue.errors import SQLQueueError

# Primary result codes, https://www.sqlite.org/rescode.html; the module names them from Python 3.11 only.
BUSY, LOCKED, READONLY, INTERRUPT, IOERR, FULL, CANTOPEN, PROTOCOL, SCHEMA, NOTADB = 5, 6, 8, 9, 10, 13, 14, 15, 17, 26

# The file was moved or replaced under an open connection; a new connection finds the new one.
READONLY_DBMOVED = READONLY | 4 << 8

# What Python 3.10 has instead of the codes.
_MESSAGES = (
    ("database is locked", BUSY),
    ("database table is locked", LOCKED),
    ("database schema is locked", LOCKED),
    ("attempt to write a readonly database", READONLY),
    ("interrupted", INTERRUPT),
    ("disk I/O error", IOERR),
    ("database or disk is full", FULL),
    ("unable to open database", CANTOPEN),
    ("locking protocol", PROTOCOL),
    ("database schema has changed", SCHEMA),
    ("file is not a database", NOTADB),
)

# A full disk loses nothing: what is written once there is room is whole.
_TRANSIENT = (BUSY, LOCKED, INTERRUPT, IOERR, FULL, PROTOCOL, SCHEMA)

# A connection that failed so is closed and replaced rather than lent again.
_SPOILED = (IOERR, CANTOPEN, NOTADB)


class PoolTimeoutError(SQLQueueError):
    """No connection of the pool came free in time."""


class PoolClosedError(SQLQueueError):
    """The pool (or the locks beside it) was closed, or belongs to the process that this one was forked from."""


def code_of(error: BaseException) -> int | None:
    """The error's extended result code, or None where SQLite did not raise it."""
    if not isinstance(error, sqlite3.Error):
        return None
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return int(code)
    message = str(error)
    return next((code for text, code in _MESSAGES if message.startswith(text)), None)


def primary(error: BaseException) -> int | None:
    """The error's primary result code, without what the extended one adds."""
    code = code_of(error)
    return None if code is None else code & 0xFF


def is_busy(error: BaseException) -> bool:
    """Whether another connection's lock was in the way."""
    return primary(error) in (BUSY, LOCKED)


def is_undecodable(error: BaseException) -> bool:
    """Whether a TEXT value was no UTF-8; sqlite3 then returns none of the rows."""
    return isinstance(error, sqlite3.OperationalError) and str(error).startswith("Could not decode to UTF-8")


def is_spoiled(error: BaseException) -> bool:
    """Whether the connection itself is to be replaced."""
    return primary(error) in _SPOILED or code_of(error) == READONLY_DBMOVED or _was_closed(error)


def classify(error: BaseException) -> Trouble:
    """The kind of trouble that `error` is."""
    if isinstance(error, PoolTimeoutError):
        return Trouble.EXHAUSTED
    if isinstance(error, PoolClosedError):
        return Trouble.CLOSED
    if primary(error) in _TRANSIENT:
        return Trouble.TRANSIENT
    if primary(error) == CANTOPEN or code_of(error) == READONLY_DBMOVED or _was_closed(error):
        return Trouble.LOST
    return Trouble.PERMANENT


def _was_closed(error: BaseException) -> bool:
    return isinstance(error, sqlite3.ProgrammingError) and "closed database" in str(error)
