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
    def connection(self) -> Iterator[Connection]:
        with self._slots, self.pool.connection() as connection:
            yield connection


_budgets: "weakref.WeakKeyDictionary[Pool, Budget]" = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def budget_of(pool: Pool) -> Budget:
    """The one budget that all consumers on a pool share."""
    with _lock:  # consumers that start together must share one
        budget = _budgets.get(pool)
        if budget is None:
            budget = _budgets[pool] = Budget(pool, threading.BoundedSemaphore(max(1, pool.size - 1)))
        return budget
