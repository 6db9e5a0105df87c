"""How many connections a broker's consumers may hold at once: the pool's size less one, so that handlers, their
queries and publishes always find one, and less one more for each listener that the pool lends. One may always be held.
"""

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from sqlqueue.dialect import Connection, Pool, Trouble
from sqlqueue.errors import PoolTooSmall, SQLQueueError

#: Connections that a pool must have which lends one to a listener for good.
LEAST_WITH_LISTENER = 2


class BudgetSpent(SQLQueueError):  # noqa: N818 - named by what happened
    """The consumers on the pool hold all the connections that they may."""


@attrs.define(eq=False)
class Slots:
    """The count, shared by all consumers on one pool."""

    size: int
    held: int = 0
    listeners: int = 0
    changed: threading.Condition = attrs.field(factory=threading.Condition)

    @property
    def free(self) -> bool:
        return self.held < max(1, self.size - 1 - self.listeners)

    @contextmanager
    def one(self, timeout: float) -> Iterator[None]:
        with self.changed:  # decided: who may hold a connection
            if not self.changed.wait_for(lambda: self.free, timeout):
                raise BudgetSpent(f"the consumers on the pool of {self.size} held all they may for {timeout:g} s")
            self.held += 1
        try:
            yield
        finally:
            with self.changed:  # decided: who is next
                self.held -= 1
                self.changed.notify()


@attrs.frozen
class Budget:
    """Lends a pool's connections to the consumers of one broker."""

    pool: Pool
    _slots: Slots

    @contextmanager
    def connection(self, timeout: float) -> Iterator[Connection]:
        """Lend one, waiting up to `timeout` seconds for the other consumers and as long for the pool."""
        with self._slots.one(timeout), self.pool.connection(timeout) as connection:
            yield connection

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Do with one less, which a listener has for good; `PoolTooSmall` where there would be none."""
        if self.pool.size < LEAST_WITH_LISTENER:
            raise PoolTooSmall(
                f"with notify=True the listener takes one of the pool's connections for good, and the pool has "
                f"{self.pool.size}; it needs {LEAST_WITH_LISTENER} or more, or give the broker a URL"
            )
        with self._slots.changed:  # decided: how many are left
            self._slots.listeners += 1
        try:
            yield
        finally:
            with self._slots.changed:  # decided: one more is left
                self._slots.listeners -= 1
                self._slots.changed.notify()


_slots: "weakref.WeakKeyDictionary[Pool, Slots]" = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def budget_of(pool: Pool) -> Budget:
    """The one budget that all consumers on a pool share."""
    with _lock:  # consumers that start together must share one
        return Budget(pool, _slots.setdefault(pool, Slots(pool.size)))


def sorted_by(classify: Callable[[BaseException], Trouble]) -> Callable[[BaseException], Trouble]:
    """A dialect's `classify` that knows of the budget as well."""
    return lambda error: Trouble.EXHAUSTED if isinstance(error, BudgetSpent) else classify(error)
