"""SQLAlchemy: a `Connection`, a `Session`, or a `scoped_session` such as Flask-SQLAlchemy's.

Loaded where the program has imported `sqlalchemy.engine`; it imports `sqlalchemy.orm` only where the program did.
"""

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import attrs
from sqlalchemy import event
from sqlalchemy.engine import Connection

from sqlqueue.hookspecs import hookimpl
from sqlqueue.plugins import manager

if TYPE_CHECKING:
    from sqlalchemy.orm import Session, SessionTransaction

#: Where a session keeps what runs after its commit.
INFO = "sqlqueue"


@hookimpl
def sqlqueue_driver_connection(obj: Any) -> Any | None:
    """The driver's connection, in the transaction that the connection or session has begun, or begins here. Nothing is
    flushed.

    What runs on it SQLAlchemy does not see; without a transaction of its own `commit()` would do nothing.
    """
    session = _session(obj)
    connection = obj if session is None else session.connection()
    if not isinstance(connection, Connection):
        return None
    if not connection.in_transaction():
        connection.begin()
    return connection.connection.driver_connection


@hookimpl
def sqlqueue_after_commit(obj: Any, call: Callable[[], None]) -> bool | None:
    """In autocommit mode the driver knows; of a `Connection`'s commit SQLAlchemy tells before it is made."""
    if isinstance(obj, Connection):
        registered: bool | None = manager().hook.sqlqueue_after_commit(obj=sqlqueue_driver_connection(obj), call=call)
        return registered
    session = _session(obj)
    transaction = session and (session.get_nested_transaction() or session.get_transaction())
    if session is None or transaction is None:
        return None
    if INFO not in session.info:
        session.info[INFO] = CallAfterCommit()
        session.info[INFO].listen(session)
    session.info[INFO].calls.setdefault(transaction, {})[call] = None
    return True


def _session(obj: Any) -> "Session | None":
    if "sqlalchemy.orm" not in sys.modules:
        return None
    from sqlalchemy.orm import Session, scoped_session

    if isinstance(obj, scoped_session):
        obj = obj()
    return obj if isinstance(obj, Session) else None


@attrs.define(eq=False)
class CallAfterCommit:
    """What runs after a session's commit, by the transaction or savepoint that asked for it; each call once."""

    calls: "dict[SessionTransaction, dict[Callable[[], None], None]]" = attrs.field(factory=dict)

    def committed(self, session: "Session") -> None:
        if session.in_nested_transaction():
            return  # a savepoint was released, which commits nothing
        ready, self.calls = self.calls, {}
        for call in {call: None for calls in ready.values() for call in calls}:
            call()

    def rolled_back(self, session: "Session", ended: "SessionTransaction") -> None:
        self.calls = {within: calls for within, calls in self.calls.items() if not _is_within(within, ended)}

    def ended(self, session: "Session", ended: "SessionTransaction") -> None:
        """A session that is closed rolls back and reports nothing else."""
        if ended.parent is None:
            self.calls = {}

    def listen(self, session: "Session") -> None:
        event.listen(session, "after_commit", self.committed)
        event.listen(session, "after_soft_rollback", self.rolled_back)
        event.listen(session, "after_transaction_end", self.ended)


def _is_within(transaction: "SessionTransaction | None", outer: "SessionTransaction") -> bool:
    while transaction is not None and transaction is not outer:
        transaction = transaction.parent
    return transaction is not None
