"""The pool's writers, one at a time: SQLite has one write lock, and no queue for it."""

import threading

from sqlqueue.errors import TransactionError


class Gate:
    """Threads of one process queue here rather than look for SQLite's lock again and again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handler: int | None = None

    def enter(self, seconds: float) -> bool:
        """Wait for one's turn, for so many seconds; whether it came. Raises `TransactionError` in a handler whose own
        delivery's transaction it would wait for."""
        if self._handler == threading.get_ident():
            raise TransactionError(
                "the database is locked by this handler's own transaction, which a second connection would wait for: "
                "write on delivery.connection, such as enqueue(…, connection=delivery.connection)"
            )
        return self._lock.acquire(timeout=seconds)

    def leave(self) -> None:
        self._lock.release()

    def lend(self) -> None:
        """From here on this thread runs a handler, which has the write lock."""
        self._handler = threading.get_ident()

    def take_back(self) -> None:
        self._handler = None
