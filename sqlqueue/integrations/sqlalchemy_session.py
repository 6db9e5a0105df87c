"""A SQLAlchemy `Session`, or a `scoped_session` such as Flask-SQLAlchemy's: loaded where the program has imported
`sqlalchemy.orm`."""

from collections.abc import Callable
from typing import Any

import attrs
from sqlalchemy import event
from sqlalchemy.orm import Session, SessionTransaction, scoped_session

from sqlqueue.hookspecs import hookimpl
from sqlqueue.integrations.sqlalchemy import driver_connection

#: Where a session keeps what runs after its commit.
INFO = "sqlqueue"

Calls = dict[Callable[[], None], None]


@attrs.define(eq=False)
class AfterCommit:
    """What runs after a session's commit, by the transaction or savepoint that asked for it; each call once."""

    calls: dict[SessionTransaction, Calls] = attrs.field(factory=dict)

    def add(self, transaction: SessionTransaction, call: Callable[[], None]) -> None:
        self.calls.setdefault(transaction, {})[call] = None

    def committed(self, session: Session) -> None:
        if session.in_nested_transaction():
            return  # a savepoint was released, which commits nothing
        ready, self.calls = self.calls, {}
        for call in {call: None for calls in ready.values() for call in calls}:
            call()

    def rolled_back(self, session: Session, ended: SessionTransaction) -> None:
        self.calls = {within: calls for within, calls in self.calls.items() if not _is_within(within, ended)}

    def ended(self, session: Session, ended: SessionTransaction) -> None:
        """A session that is closed rolls back without a word."""
        if ended.parent is None:
            self.calls = {}

    def listen(self, session: Session) -> None:
        event.listen(session, "after_commit", self.committed)
        event.listen(session, "after_soft_rollback", self.rolled_back)
        event.listen(session, "after_transaction_end", self.ended)


def _is_within(transaction: SessionTransaction | None, outer: SessionTransaction) -> bool:
    while transaction is not None and transaction is not outer:
        transaction = transaction.parent
    return transaction is not None


def _session(obj: Any) -> Session | None:
    if isinstance(obj, scoped_session):
        obj = obj()
    return obj if isinstance(obj, Session) else None


@hookimpl
def sqlqueue_driver_connection(obj: Any) -> Any | None:
    """The driver's connection of the session's transaction, which begins here if it has not. Nothing is flushed."""
    session = _session(obj)
    return None if session is None else driver_connection(session.connection())


@hookimpl
def sqlqueue_after_commit(obj: Any, call: Callable[[], None]) -> bool | None:
    session = _session(obj)
    transaction = session and (session.get_nested_transaction() or session.get_transaction())
    if session is None or transaction is None:
        return None
    if INFO not in session.info:
        session.info[INFO] = AfterCommit()
        session.info[INFO].listen(session)
    session.info[INFO].add(transaction, call)
    return True
