"""A clock that stands still until a test moves it."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

from sqlqueue.clock import UTC, Duration, utc

START = datetime(2030, 1, 1, tzinfo=UTC)


class ManualClock:
    """A `Clock` for tests: `now()` is what it was set to, and consumers look again when it moves.

    `reads` counts the calls of `now()`.
    """

    def __init__(self, start: datetime = START) -> None:
        self._now = utc(start, "start")
        self._lock = threading.Lock()
        self._callbacks: list[Callable[[], None]] = []
        self.reads = 0

    def now(self) -> datetime:
        with self._lock:  # a read is counted with the value that it gave
            self.reads += 1
            return self._now

    def advance(self, by: Duration) -> datetime:
        """Move by seconds, or a timedelta, forward or back; the new *now*."""
        step = by if isinstance(by, timedelta) else timedelta(seconds=by)
        return self.set(self._now + step)

    def set(self, moment: datetime) -> datetime:
        """Set *now* to an aware datetime."""
        with self._lock:  # nobody reads between the move and its announcement
            self._now = utc(moment, "moment")
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()
        return self._now

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `callback` called after each move, until the function that is returned is called."""
        with self._lock:  # a move calls those who are there
            self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback)
