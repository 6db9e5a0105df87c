"""How many connections a broker's consumers may hold at once: the pool's size less one, so that handlers, their
queries and publishes always find one; a pool of one is shared."""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from sqlqueue.dialect import Connection, Pool


@attrs.define(eq=False)
class Budget:
    """Lends a pool's connections to the consumers of one broker."""

    pool: Pool
    _slots: threading.BoundedSemaphore

    @contextmanager
    def connection(self, timeout: float) -> Iterator[Connection]:
        """Lend one, waiting up to `timeout` seconds for the other consumers and as long for the pool."""
        granted = self._slots.acquire(timeout=timeout)
        try:
            with self.pool.connection(timeout) as connection:
                yield connection
        finally:
            if granted:
                self._slots.release()


_budgets: "weakref.WeakKeyDictionary[Pool, Budget]" = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def budget_of(pool: Pool) -> Budget:
    """The one budget that all consumers on a pool share."""
    with _lock:  # consumers that start together must share one
        budget = _budgets.get(pool)
        if budget is None:
            budget = _budgets[pool] = Budget(pool, threading.BoundedSemaphore(max(1, pool.size - 1)))
        return budget
