"""Forks: none happens while one of our threads is inside SQLite.

The library has locks of its own, such as the one around its memory. A fork copies them as they are, so a child whose
parent's watcher was looking at that moment would wait for ever in its first call (seen within a hundred forks).
"""

import os
import threading
from types import TracebackType

#: Seconds that a fork waits at most: a child that may hang is better than a parent that does.
PATIENCE = 1.0


class ForkGate:
    """Many threads may be inside at once, and again within; a fork waits for those of other threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._forking = False
        self._own = threading.local()

    def __enter__(self) -> None:
        own = self._count()
        with self._changed:  # decided: in before the fork, or after it
            while self._forking and not own:
                self._changed.wait()
            self._inside += 1
        self._own.count = own + 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._own.count -= 1
        with self._changed:  # decided: whether a fork that waits may go on
            self._inside -= 1
            if self._forking:
                self._changed.notify_all()

    def _count(self) -> int:
        return getattr(self._own, "count", 0)

    def before_fork(self) -> None:
        self._changed.acquire()  # until the fork is done, so that the child gets it in a known state
        self._forking = True
        self._changed.wait_for(lambda: self._inside == self._count(), PATIENCE)

    def after_fork(self) -> None:
        self._forking = False
        self._changed.notify_all()
        self._changed.release()

    def after_fork_in_child(self) -> None:
        self._changed = threading.Condition(threading.Lock())  # nobody waits for it here
        self._forking = False
        self._inside = self._count()


#: Held by whoever calls into SQLite.
fork_gate = ForkGate()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=fork_gate.before_fork,
        after_in_parent=fork_gate.after_fork,
        after_in_child=fork_gate.after_fork_in_child,
    )
