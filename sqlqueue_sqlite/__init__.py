"""sqlqueue on SQLite, through the standard library's `sqlite3`. Loaded by the URL scheme `sqlite`."""

import sqlite3
from collections.abc import Callable
from typing import Any

from sqlqueue.dialect import Dialect
from sqlqueue.hookspecs import hookimpl
from sqlqueue_sqlite.database import SCHEME, parse
from sqlqueue_sqlite.dialect import SQLiteDialect

__all__ = ["SQLiteDialect", "sqlqueue_after_commit", "sqlqueue_dialect", "sqlqueue_driver_connection"]


@hookimpl
def sqlqueue_dialect(source: Any) -> Dialect | None:
    """The dialect for a URL `sqlite:…`; raises `DeclarationError` where its form is none that we know."""
    if isinstance(source, str) and source.lower().startswith(SCHEME):
        return SQLiteDialect(parse(source))
    return None


@hookimpl
def sqlqueue_driver_connection(obj: Any) -> Any | None:
    """A `sqlite3.Connection` is the driver's own already."""
    return obj if isinstance(obj, sqlite3.Connection) else None


@hookimpl
def sqlqueue_after_commit(obj: Any, call: Callable[[], None]) -> bool | None:
    """Outside of a transaction the driver has committed already; of a later commit it tells nobody."""
    if not isinstance(obj, sqlite3.Connection) or obj.in_transaction:
        return None
    call()
    return True
