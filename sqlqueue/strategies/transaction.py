"""A seat's connection while a handler may write on it, in the transaction that its acknowledgement commits."""

from collections.abc import Iterable, Sequence
from typing import Any

from sqlqueue.connection import Session
from sqlqueue.dialect import Row
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import COMMIT, Begin, Call, Savepoint, Statement, Step


class Transaction:
    """A `Session` for strategies, who need not know of handlers: while a handler's transaction is open, what settles
    its row joins that and commits it.

    `begin` opens a handler's transaction; None where the claim's own is the handler's.
    """

    def __init__(self, session: Session, begin: Begin | None) -> None:
        self._session, self._begin = session, begin
        self._open = False
        self.last = False

    @property
    def open(self) -> bool:
        """Whether what a handler wrote waits to be kept or undone."""
        return self._open

    def lend(self) -> Any:
        """The driver's connection for a handler."""
        try:
            driver = self._session.lend(self._begin)
            self._open = True
        finally:
            if not self._open:
                self._session.roll_back()
        return driver

    def take_back(self) -> str | None:
        """As `Session.take_back`, the problem alone: whether it was the connection's last delivery stays in `last`."""
        back = self._session.take_back()
        self.last = back.last
        return back.problem

    def undo(self) -> bool:
        """Undo what the handler wrote. Whether the row is still held: under a row lock it is not, where the handler
        ended the transaction that held it."""
        if not self._open:
            return True
        self._open = False
        if self._begin is not None:
            self._session.roll_back()
            return not self._session.closed
        held = False
        try:
            self._session.send([Savepoint.UNDO])
            held = True
        finally:
            if not held:
                self._session.roll_back()
        return held

    def settle_within(self, calls: Sequence[Call]) -> list[list[Row]]:
        """Settle in the handler's transaction, which stays open until it is committed or rolled back."""
        return self._session.send([Savepoint.RELEASE, *calls])

    def ask_within(self, calls: Sequence[Call]) -> list[list[Row]]:
        return self._session.send(calls)

    def commit(self) -> None:
        self._open = False
        self._session.send([COMMIT])

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        if not self._open:
            return self._session.run(calls, durable=durable)
        return self.send([*calls, COMMIT])

    def send(self, steps: Sequence[Step]) -> list[list[Row]]:
        if not self._open:
            return self._session.send(steps)
        self._open = False
        joined = steps[1:] if steps and isinstance(steps[0], Begin) else steps
        return self._session.send([Savepoint.RELEASE, *joined])

    def roll_back(self) -> None:
        self._open = False
        self._session.roll_back()

    @property
    def driver(self) -> Any:
        return self._session.driver

    def close(self) -> None:
        self._open = False
        self._session.close()

    @property
    def closed(self) -> bool:
        return self._session.closed

    def insert_many(
        self,
        insert: Statement,
        table: TableSpec,
        columns: Sequence[ColumnSpec],
        rows: Iterable[Row],
        *,
        then: Sequence[Call] = (),
    ) -> int:
        return self._session.insert_many(insert, table, columns, rows, then=then)
