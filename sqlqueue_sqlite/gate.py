"""The pool's writers, one at a time: SQLite has one write lock, and no queue for it."""

import threading
from time import monotonic

from sqlqueue.errors import TransactionError
from sqlqueue_sqlite.patience import LONGEST_PAUSE

#: Seconds of a handler's transaction after which others have waited for long.
LONG = 0.2

#: Seconds that are theirs then: each looks at least once. They could hardly meet the moment between two transactions
#: that follow each other, and their leases would end, whose extensions wait here.
TURN = 1.25 * LONGEST_PAUSE

# Nobody sets it: its wait is a pause.
_NEVER = threading.Event()


class Gate:
    """Threads of one process queue here rather than look for SQLite's lock again and again; other processes get their
    turn when a handler has held it for long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handler: int | None = None
        self._lent_at: float | None = None
        self._ours_at = 0.0

    def enter(self, seconds: float) -> bool:
        """Wait for one's turn, for so many seconds; whether it came. Raises `TransactionError` in a handler whose own
        delivery's transaction it would wait for."""
        if self._handler == threading.get_ident():
            raise TransactionError(
                "the database is locked by this handler's own transaction, which a second connection would wait for: "
                "write on delivery.connection, such as enqueue(…, connection=delivery.connection)"
            )
        if not self._lock.acquire(timeout=seconds):
            return False
        theirs = self._ours_at - monotonic()
        if theirs > 0:
            _NEVER.wait(theirs)
        return True

    def leave(self) -> None:
        if self._lent_at is not None:
            now, lent_at, self._lent_at = monotonic(), self._lent_at, None
            self._ours_at = now + TURN if now - lent_at >= LONG else 0.0
        self._lock.release()

    def lend(self) -> None:
        """From here on this thread runs a handler, which has the write lock."""
        self._handler = threading.get_ident()
        self._lent_at = monotonic()

    def take_back(self) -> None:
        self._handler = None
