"""PostgreSQL for sqlqueue, through psycopg 3: what the entry points `postgresql` and `postgres` load.

Reading order: `dialect` (what PostgreSQL answers), `values` (Python to SQL and back), `connection` and `fuse` (how
statements run), `pool`, `loan` (what a handler gets of a connection), `adopted` and `psycopg2` (the caller's own),
`waker` (LISTEN), `sessions` (poolers), `ddl`, `schema` (what is checked at the start), `trouble`.
"""

from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from sqlqueue.dialect import Dialect
from sqlqueue.errors import DeclarationError
from sqlqueue.hookspecs import hookimpl
from sqlqueue_postgres.dialect import PostgresDialect, is_psycopg2

__all__ = ["PostgresDialect", "sqlqueue_after_commit", "sqlqueue_dialect", "sqlqueue_driver_connection"]

SCHEMES = ("postgresql://", "postgres://")


@hookimpl
def sqlqueue_dialect(source: Any) -> Dialect | None:
    """PostgreSQL for its URLs and for psycopg's pools."""
    if isinstance(source, AsyncConnectionPool):
        raise DeclarationError(
            f"{source!r} serves an event loop; sqlqueue works on threads: give a psycopg_pool.ConnectionPool"
        )
    if isinstance(source, ConnectionPool):
        return PostgresDialect(source)
    if isinstance(source, str) and source.startswith(SCHEMES):
        return PostgresDialect(source)
    return None


@hookimpl
def sqlqueue_driver_connection(obj: Any) -> Any | None:
    """A connection of psycopg's or psycopg2's is the driver's own already."""
    ours = isinstance(obj, psycopg.Connection | psycopg.AsyncConnection) or is_psycopg2(obj)
    return obj if ours else None


@hookimpl
def sqlqueue_after_commit(obj: Any, call: Callable[[], None]) -> bool | None:
    """Outside of a transaction the server has committed already; of a later commit the drivers tell nobody."""
    if isinstance(obj, psycopg.Connection):
        idle = obj.info.transaction_status == TransactionStatus.IDLE
    else:
        idle = is_psycopg2(obj) and obj.info.transaction_status == TransactionStatus.IDLE
    if idle:
        call()
    return idle or None
