"""Taking from a queue within a time limit, on every Python."""

import sys
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")

# Where the time of `SimpleQueue.get` is up between two of its lines, it waits for ever: in Python 3.10 with a limit of
# 0 s that took 30,000 to 60,000 tries, in 3.11 and 3.12 with one of 0.1 µs some thousands. It does so after it found
# the queue unlocked and empty, and a try without waiting leaves an empty queue locked. Where several take, another may
# unlock it in between; a thread is hardly ever off its core for as long as this just there.
SHORTEST = 0.02 if sys.version_info < (3, 11) else 0.0


def take(items: "SimpleQueue[T]", seconds: float) -> T:
    """The next item, waited for so many seconds at the most, 0 for what is there already; `queue.Empty` where there is
    none."""
    try:
        return items.get_nowait()
    except Empty:
        if seconds <= 0:
            raise
    return items.get(timeout=max(seconds, SHORTEST))
