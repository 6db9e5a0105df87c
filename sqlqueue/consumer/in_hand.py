"""What the seats of one queue hold: rows in work, each with its connection, and those that are being settled."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Condition

from sqlqueue.consumer.handlers import Work
from sqlqueue.dialect import Connection


class InHand:
    """Who takes a row out of work settles it, and says when that is done. For any thread."""

    def __init__(self) -> None:
        self._in_work: dict[Work, Connection] = {}
        self._settling = self._turning = 0
        self._extending: Sequence[Work] = ()
        self._unkept: set[Work] = set()
        self._closed = False
        self._changed = Condition()

    def __len__(self) -> int:
        return len(self._in_work) + self._settling

    @property
    def in_work(self) -> Sequence[Work]:
        return tuple(self._in_work)

    @contextmanager
    def turn(self, look: bool) -> Iterator[bool]:
        """A turn at the database; whether it may look for rows."""
        with self._changed:  # decided: whether a row may come to work
            self._turning += 1
            look = look and not self._closed
        try:
            yield look
        finally:
            with self._changed:  # decided: whether whoever waits may go on
                self._turning -= 1
                self._changed.notify_all()

    def begin(self, work: Work, connection: Connection) -> None:
        with self._changed:  # decided: the row is in work
            self._in_work[work] = connection

    def keep_no_more(self, work: Work) -> None:
        """Extend the row's lease no more; an extension under way is over by then."""
        with self._changed:  # decided: who keeps the row
            self._changed.wait_for(lambda: work not in self._extending)
            self._unkept.add(work)

    def take(self, work: Work) -> bool:
        """Take a row out of work, to settle it; False where somebody else has. An extension of its lease, which moves
        its token, is over by then."""
        with self._changed:  # decided: who settles the row
            if self._extending:
                self._changed.wait_for(lambda: work not in self._extending)
            mine = self._in_work.pop(work, None) is not None
            self._unkept.discard(work)
            self._settling += mine
            return mine

    def take_all(self, works: Sequence[Work]) -> bool:
        """The same for the rows of a batch, all of them or none."""
        with self._changed:  # decided: who settles the rows
            mine = all(work in self._in_work for work in works)
            for work in works if mine else ():
                del self._in_work[work]
                self._settling += 1
            return mine

    def done(self) -> None:
        """A row that was taken out of work is settled, or lost."""
        with self._changed:  # decided: whether whoever waits may go on
            self._settling -= 1
            self._changed.notify_all()

    @contextmanager
    def extending(self) -> Iterator[Sequence[Work]]:
        """What is in work and kept, and is not settled for the while."""
        with self._changed:  # decided: whose tokens move
            self._extending = tuple(work for work in self._in_work if work not in self._unkept)
        try:
            yield self._extending
        finally:
            with self._changed:  # decided: who may be settled
                self._extending = ()
                self._changed.notify_all()

    def close(self, timeout: float) -> Sequence[tuple[Work, Connection]]:
        """No row comes to work any more; take all that are, after what is under way, within so many seconds."""
        with self._changed:  # decided: who settles what is left
            self._closed = True
            self._changed.wait_for(lambda: not (self._turning or self._settling), timeout)
            taken = list(self._in_work.items())
            self._in_work.clear()
            self._settling += len(taken)
            return taken
