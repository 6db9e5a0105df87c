"""A SQLAlchemy `Connection`: loaded where the program has imported `sqlalchemy.engine`."""

from collections.abc import Callable
from typing import Any

from sqlalchemy.engine import Connection

from sqlqueue.hookspecs import hookimpl
from sqlqueue.plugins import manager


def driver_connection(connection: Connection) -> Any:
    """The driver's connection, in the transaction that SQLAlchemy has begun, or begins here.

    What runs on it SQLAlchemy does not see; without a transaction of its own `commit()` would do nothing.
    """
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


@hookimpl
def sqlqueue_driver_connection(obj: Any) -> Any | None:
    return driver_connection(obj) if isinstance(obj, Connection) else None


@hookimpl
def sqlqueue_after_commit(obj: Any, call: Callable[[], None]) -> bool | None:
    """In autocommit mode the driver knows; of a `Connection`'s commit SQLAlchemy tells before it is made."""
    if not isinstance(obj, Connection):
        return None
    told: bool | None = manager().hook.sqlqueue_after_commit(obj=driver_connection(obj), call=call)
    return told
