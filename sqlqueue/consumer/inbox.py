"""How other threads reach a pump: finished deliveries, and hints that are remembered if nobody waits."""

from queue import Empty, SimpleQueue
from threading import Lock
from typing import Generic, TypeVar

from sqlqueue.timed import take

T = TypeVar("T")

#: Seconds after which a wait returns in any case; the platform's locks take no endless numbers.
LONGEST = 3600.0


class Inbox(Generic[T]):
    """Items put by many threads, taken all at once by one."""

    def __init__(self) -> None:
        self._items: SimpleQueue[T | None] = SimpleQueue()
        self._lock = Lock()
        self._seen = 0
        self._closed = False
        self.wakes = 0

    def put(self, item: T) -> bool:
        """Hand an item over; False, and nothing is taken, once the inbox is closed."""
        if self._closed:
            return False
        self._items.put(item)
        return True

    def wake(self) -> None:
        """Count a wake-up. One that nobody has seen yet stands for all that come before it is."""
        with self._lock:  # whether the taker must be roused
            rouse = self.wakes == self._seen
            self.wakes += 1
        if rouse:
            self._items.put(None)

    def rouse(self) -> None:
        """Have the taker return, with nothing if need be."""
        self._items.put(None)

    def take(self, timeout: float | None) -> tuple[list[T], bool]:
        """All items that are there, and whether somebody woke.

        Waits up to `timeout` seconds for the first (None: for ever).
        """
        items: list[T] = []
        try:
            item = self._items.get() if timeout is None else take(self._items, min(timeout, LONGEST))
            while True:
                if item is not None:
                    items.append(item)
                item = self._items.get_nowait()
        except Empty:
            pass
        if self.wakes == self._seen:
            return items, False
        with self._lock:  # wake-ups up to here are seen; the next one rouses again
            self._seen = self.wakes
        return items, True

    def close(self) -> None:
        """Refuse what comes from here on."""
        self._closed = True
