"""A connection while a handler may write on it, in the transaction that its acknowledgement commits; and what is to be
called once that is committed, such as the wake-ups for rows that were enqueued in it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlqueue.connection import Session
from sqlqueue.dialect import Row
from sqlqueue.errors import TransactionError
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import COMMIT, ROLLBACK, Begin, Call, Savepoint, Statement, Step

#: By the identity of the driver's connection, from the loan to a handler until it returns.
_waiting: dict[int, list[Callable[[], None]]] = {}


def collect_calls(connection: Any) -> None:
    """From here on this connection is in a delivery's transaction."""
    _waiting[id(connection)] = []


def after_commit(connection: Any, call: Callable[[], None]) -> bool:
    """Have `call` called when the delivery is acknowledged; False where the connection is no delivery's."""
    calls = _waiting.get(id(connection))
    if calls is None:
        return False
    calls.append(call)
    return True


def collected_calls(connection: Any) -> Sequence[Callable[[], None]]:
    """The handler has returned: what is to be called once the transaction is committed."""
    return _waiting.pop(id(connection), ())


class Transaction:
    """A `Session` for strategies, who need not know of handlers: while a handler's transaction is open, what settles
    its row joins that and commits it.

    `begin` opens a handler's transaction; None where the claim's own is the handler's. `open`: whether what a handler
    wrote waits to be kept or undone. `last`: whether the connection may have no further delivery.
    """

    def __init__(self, session: Session, begin: Begin | None) -> None:
        self._session, self._begin = session, begin
        self.open = False
        self._touched = False
        self.last = False

    def lend(self) -> Any:
        """The driver's connection for a handler."""
        try:
            driver = self._session.lend(self._begin)
            self.open = True
        finally:
            if not self.open:
                self._session.roll_back()
        return driver

    def take_back(self) -> str | None:
        """As `Session.take_back`, the problem alone: whether it was the connection's last delivery stays in `last`."""
        back = self._session.take_back()
        self.last, self._touched = back.last, back.problem is not None
        return back.problem

    def undo(self) -> bool:
        """Undo what the handler wrote. Whether the row is still held: under a row lock it is not, where the handler
        ended the transaction that held it. Raises `TransactionError` where only now it shows that it did."""
        if not self.open:
            return True
        self.open = undone = False
        try:
            if not self._touched:
                self._session.send([Savepoint.UNDO] if self._begin is None else [Savepoint.UNDO, ROLLBACK])
                undone = True
        finally:
            if not undone:
                self._session.roll_back()
        return undone or (self._begin is not None and not self._session.closed)

    def settle_within(self, calls: Sequence[Call]) -> list[list[Row]]:
        """Settle in the handler's transaction, which stays open until it is committed or rolled back."""
        return self._send_behind(calls)

    def _send_behind(self, steps: Sequence[Step]) -> list[list[Row]]:
        try:
            return self._session.send([Savepoint.RELEASE, *steps])
        except TransactionError as ended:
            raise unacknowledged(str(ended)) from None

    def ask_within(self, calls: Sequence[Call]) -> list[list[Row]]:
        return self._session.send(calls)

    def commit(self) -> None:
        self.open = False
        self._session.send([COMMIT])

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        if not self.open:
            return self._session.run(calls, durable=durable)
        self.open = False
        return self._send_behind([*calls, COMMIT])

    def send(self, steps: Sequence[Step]) -> list[list[Row]]:
        if not self.open:
            return self._session.send(steps)
        self.open = False
        joined = steps[1:] if steps and isinstance(steps[0], Begin) else steps
        return self._send_behind(joined)

    def roll_back(self) -> None:
        self.open = False
        self._session.roll_back()

    @property
    def driver(self) -> Any:
        return self._session.driver

    def close(self) -> None:
        self.open = False
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


def unacknowledged(problem: str) -> TransactionError:
    """The error of a handler that returned, but did to its transaction what must not be."""
    return TransactionError(f"the handler returned, but {problem}; nothing was acknowledged")
