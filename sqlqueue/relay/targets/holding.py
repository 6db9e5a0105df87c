"""What a publisher holds open: made at first use, by each process for itself."""

import os
import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

import attrs

from sqlqueue.relay.targets.tally import Refused


class Closable(Protocol):
    """What is held."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Closable)

CLOSED = "the publisher is closed; make a new one"


@attrs.define(eq=False)
class Holding(Generic[T]):
    """At most one, opened by `get()`; none after `close()`. For any thread."""

    _open: Callable[[], T]
    _held: T | None = attrs.field(init=False, default=None)
    _closed: bool = attrs.field(init=False, default=False)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        _all.add(self)

    def get(self) -> T:
        """Raises `Refused` once it is closed."""
        with self._lock:  # whether one is there, and which
            if self._closed:
                raise Refused(CLOSED)
            if self._held is None:
                self._held = self._open()
            return self._held

    def drop(self, held: T) -> None:
        """Close what has become useless; the next `get()` opens another."""
        with self._lock:  # whether it is still the one
            if self._held is not held:
                return
            self._held = None
        held.close()

    def close(self) -> None:
        with self._lock:  # who closes it
            self._closed, held, self._held = True, self._held, None
        if held is not None:
            held.close()

    def forked(self) -> None:
        """In a child: what is held is the parent's. Its threads are not here, and its sockets are not to be used."""
        self._lock = threading.Lock()
        if self._held is not None:
            _of_parents.append(self._held)
            self._held = None


_all: WeakSet[Holding[Any]] = WeakSet()

#: What a forked child got from its parent: kept, because its end would reach for the parent's threads and sockets.
_of_parents: list[Any] = []


def _forked() -> None:
    for holding in list(_all):
        holding.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
