"""Waiting for SQLite's one write lock, which has no queue: look again after short, uneven pauses."""

import random
import sqlite3
import threading
import time
from collections.abc import Callable
from typing import TypeVar

import attrs

from sqlqueue_sqlite.trouble import is_busy

T = TypeVar("T")

FIRST_PAUSE = 0.0005  # seconds; a short transaction is over by then
LONGEST_PAUSE = 0.02

# Nobody sets it: its wait is a pause that needs no clock.
_NEVER = threading.Event()


def uneven(seconds: float) -> float:
    """Between half of `seconds` and all of them, so that those who wait do not march in step."""
    return random.uniform(0.5, 1.0) * seconds  # noqa: S311 - nobody gains by guessing it


@attrs.define
class Patience:
    """Pauses until `seconds` have passed since it was made."""

    seconds: float
    _ends: float = attrs.field(init=False)
    _next: float = attrs.field(init=False, default=FIRST_PAUSE)

    def __attrs_post_init__(self) -> None:
        self._ends = time.monotonic() + self.seconds

    def left(self) -> float:
        """Seconds left, 0 at the end."""
        return max(0.0, self._ends - time.monotonic())

    def pause(self) -> None:
        _NEVER.wait(min(uneven(self._next), self.left()))
        self._next = min(self._next * 1.5, LONGEST_PAUSE)


def patiently(attempt: Callable[[], T], patience: Patience) -> T:
    """What `attempt` returns, tried again while the database is locked and patience lasts; then its error."""
    while True:
        try:
            return attempt()
        except sqlite3.Error as error:
            if not is_busy(error) or not patience.left():
                raise
        patience.pause()
