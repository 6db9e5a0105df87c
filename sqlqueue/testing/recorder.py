"""An observer that remembers, so that a test waits for an event instead of sleeping."""

import threading
from collections.abc import Callable
from time import monotonic

from sqlqueue.observers import Event

#: Seconds that a test waits at most, unless it says otherwise.
LIMIT = 10.0


class Recorder:
    """Remembers every event, in order. Hand it to `Consumer(observers=[…])`; safe from any thread."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._changed = threading.Condition()

    def notice(self, event: Event) -> None:
        with self._changed:  # waiters look at whole lists only
            self._events.append(event)
            self._changed.notify_all()

    @property
    def events(self) -> list[Event]:
        """All events so far, oldest first."""
        with self._changed:  # a copy nobody appends to
            return list(self._events)

    def of(self, *kinds: str, queue: str | None = None) -> list[Event]:
        """The events of these kinds so far, oldest first, of one queue if it is named."""
        return [event for event in self.events if event.kind in kinds and queue in (None, event.queue)]

    def wait_for(
        self,
        *kinds: str,
        count: int = 1,
        timeout: float = LIMIT,
        where: Callable[[Event], bool] = lambda _: True,
    ) -> list[Event]:
        """Wait until there are `count` events of these kinds for which `where` holds, and return them, oldest first.

        Raises `AssertionError`, saying what there is instead, after `timeout` seconds.
        """
        deadline = monotonic() + timeout
        with self._changed:  # the wait gives the lock up
            while True:
                found = [event for event in self._events if event.kind in kinds and where(event)]
                if len(found) >= count:
                    return found
                left = deadline - monotonic()
                if left <= 0 or not self._changed.wait(left):
                    raise AssertionError(
                        f"{len(found)} of {count} events {' or '.join(kinds)} after {timeout} s; all: {self._events}"
                    )

    def clear(self) -> None:
        """Forget what was recorded."""
        with self._changed:  # nobody waits on half a list
            self._events.clear()
