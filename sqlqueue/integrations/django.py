"""Django's connections, and its care for them around handlers: loaded where the program has imported `django.db`."""

from collections.abc import Callable
from typing import Any

# As modules: pluggy looks at every name of a plugin, and Django's lazy objects would wake up.
from django import conf, db
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from sqlqueue.hookspecs import hookimpl


def _wrapper(obj: Any) -> Any:
    """What `django.db.connection` or `connections[alias]` stands for in this thread."""
    if isinstance(obj, ConnectionProxy) and hasattr(obj, "in_atomic_block"):  # caches have proxies too
        obj = db.connections[obj.alias]
    return obj if isinstance(obj, BaseDatabaseWrapper) else None


@hookimpl
def sqlqueue_driver_connection(obj: Any) -> Any | None:
    """The driver's connection in Django's transaction, where Django itself would run a statement: in the thread of the
    connection, and in no `atomic` block that is broken already."""
    wrapper = _wrapper(obj)
    if wrapper is None:
        return None
    wrapper.validate_thread_sharing()
    wrapper.ensure_connection()
    wrapper.validate_no_broken_transaction()
    return wrapper.connection


@hookimpl
def sqlqueue_after_commit(obj: Any, call: Callable[[], None]) -> bool | None:
    """By `on_commit`, which also knows of savepoints; without autocommit Django does not see the commit."""
    wrapper = _wrapper(obj)
    if wrapper is None or not (wrapper.in_atomic_block or wrapper.get_autocommit()):
        return None
    wrapper.on_commit(call)
    return True


@hookimpl
def sqlqueue_wrap_handler(queue: str, call: Any) -> Any:
    """Close what a handler's thread holds too long or has lost, before and after each, as Django does for a request."""

    def with_fresh_connections(message: Any, delivery: Any) -> Any:
        if not conf.settings.configured:
            return call(message, delivery)
        db.close_old_connections()
        try:
            return call(message, delivery)
        finally:
            db.close_old_connections()

    return with_fresh_connections
