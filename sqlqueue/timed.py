"""Taking from a queue within a time limit, on every Python."""

import sys
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")

# Where the time of Python 3.10's `SimpleQueue.get` is up between two of its lines, it waits for ever: with a limit of
# 0 s that took 30,000 to 60,000 tries. A thread is hardly ever off its core for as long as this just there.
SHORTEST = 0.02 if sys.version_info < (3, 11) else 0.0


def take(items: "SimpleQueue[T]", seconds: float) -> T:
    """The next item, waited for so many seconds at the most, 0 for what is there already; `queue.Empty` where there is
    none."""
    return items.get_nowait() if seconds <= 0 else items.get(timeout=max(seconds, SHORTEST))
