"""The connection budget: how many connections of a pool the consumers of one broker may hold at once.

They may hold the pool's size less one, so that handlers, their queries and publishes always find a connection. Each
listener that the pool lends takes one more off. One connection may always be held. A delivery keeps its connection
while its handler runs. Where queues on the pool need connections only for single statements, one of several is kept for
them, so that they never wait for a handler. Those who wait are served in the order in which they came.
"""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from types import TracebackType
from typing import Any

import attrs

from sqlqueue.dialect import Connection, Pool, Trouble
from sqlqueue.errors import PoolTooSmall, SQLQueueError
from sqlqueue.outcome import Settlement
from sqlqueue.strategies.claim import NOBODY, Claim, LeaseStrategy, PassOver, Turn, Turned, Upcoming

#: Connections that a pool must have which lends one to a listener for good.
LEAST_WITH_LISTENER = 2


class BudgetSpent(SQLQueueError):  # noqa: N818 - named by what happened
    """The consumers on the pool hold all the connections that they may."""


@attrs.frozen(eq=False)
class Ticket:
    """Somebody who waits for a connection: for a delivery of `queue`, or for a statement (None)."""

    queue: str | None


@attrs.define(eq=False)
class Slots:
    """The count, shared by all consumers on one pool. `held_by_deliveries`: those of the held ones that deliveries
    hold."""

    size: int
    held: int = 0
    held_by_deliveries: int = 0
    listeners: int = 0
    statements: int = 0
    changed: threading.Condition = attrs.field(factory=threading.Condition)
    waiting: deque[Ticket] = attrs.field(factory=deque)

    @property
    def most(self) -> int:
        """Connections that may be held."""
        return max(1, self.size - 1 - self.listeners)

    @property
    def most_by_deliveries(self) -> int:
        """Connections that deliveries may hold."""
        return self.most - 1 if self.statements and self.most > 1 else self.most

    def wanted(self, queue: str) -> bool:
        """Whether anybody but this queue waits for a connection that one of its deliveries holds."""
        with self.changed:  # others come and go meanwhile
            return any(ticket.queue != queue for ticket in self.waiting)

    def take(self, timeout: float, queue: str | None = None, given_up: Callable[[], bool] = bool) -> None:
        """Take one for a delivery of `queue`, or for a statement (None). Raises `BudgetSpent` after `timeout` seconds,
        and once `given_up()` is true, which those who wait ask at each `rouse`."""
        with self.changed:  # decided: who may hold a connection
            most = max(1, self.size - 1 - self.listeners)
            if self.waiting or self.held >= most or (queue is not None and self.held_by_deliveries >= most - 1):
                self._wait(Ticket(queue), timeout, given_up)
            self.held += 1
            if queue is not None:
                self.held_by_deliveries += 1

    def _wait(self, ticket: Ticket, timeout: float, given_up: Callable[[], bool]) -> None:
        self.waiting.append(ticket)
        try:
            self.changed.wait_for(lambda: given_up() or self._next() is ticket, timeout)
            if given_up() or self._next() is not ticket:
                raise BudgetSpent(f"the consumers on the pool of {self.size} held all they may for {timeout:g} s")
        finally:
            self.waiting.remove(ticket)
            if self.waiting:
                self.changed.notify_all()

    def _next(self) -> Ticket | None:
        """The first of those who wait that a free connection may go to."""
        if self.held >= self.most:
            return None
        for_deliveries = self.held_by_deliveries < self.most_by_deliveries
        return next((ticket for ticket in self.waiting if for_deliveries or ticket.queue is None), None)

    def give_back(self, queue: str | None = None) -> None:
        """Give one back that was taken so."""
        with self.changed:  # decided: who is next
            self.held -= 1
            if queue is not None:
                self.held_by_deliveries -= 1
            if self.waiting:
                self.changed.notify_all()


@attrs.define(eq=False)
class Lent:
    """One of the pool's connections within the budget, for a `with` block: for a delivery of `queue`, or for a
    statement (None)."""

    _budget: "Budget"
    _timeout: float
    _queue: str | None = None
    _given_up: Callable[[], bool] = bool
    _lent: AbstractContextManager[Connection] | None = attrs.field(default=None, init=False)

    def __enter__(self) -> Connection:
        budget = self._budget
        budget.slots.take(self._timeout, self._queue, self._given_up)
        try:
            lent = budget.pool.connection(self._timeout)
            connection = lent.__enter__()
        except BaseException:
            budget.slots.give_back(self._queue)
            raise
        self._lent = lent
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        assert self._lent is not None
        try:
            return self._lent.__exit__(kind, error, trace)
        finally:
            self._budget.slots.give_back(self._queue)


@attrs.frozen
class Budget:
    """Lends a pool's connections to the consumers of one broker."""

    pool: Pool
    slots: Slots

    def for_statement(self, timeout: float) -> Lent:
        """Lend one for a statement. Waits up to `timeout` seconds for the other consumers, and as long for the pool."""
        return Lent(self, timeout)

    def for_delivery(self, queue: str, timeout: float, given_up: Callable[[], bool]) -> Lent:
        """Lend one that a delivery of this queue may hold. Nobody waits any longer once `given_up()`, after
        `rouse()`."""
        return Lent(self, timeout, queue, given_up)

    def rouse(self) -> None:
        """Have those who wait see whether they should."""
        with self.slots.changed:  # decided: who still waits
            self.slots.changed.notify_all()

    @contextmanager
    def for_listener(self) -> Iterator[None]:
        """Do with one less, which a listener has for good; `PoolTooSmall` where there would be none."""
        if self.pool.size < LEAST_WITH_LISTENER:
            raise PoolTooSmall(
                f"with notify=True the listener takes one of the pool's connections for good, and the pool has "
                f"{self.pool.size}; it needs {LEAST_WITH_LISTENER} or more, or give the broker a URL"
            )
        with self._counted("listeners"):
            yield

    def for_statements(self) -> AbstractContextManager[None]:
        """Keep one of several connections for a queue that needs them for its statements only."""
        return self._counted("statements")

    @contextmanager
    def _counted(self, what: str) -> Iterator[None]:
        with self.slots.changed:  # decided: how many are left
            setattr(self.slots, what, getattr(self.slots, what) + 1)
        try:
            yield
        finally:
            with self.slots.changed:  # decided: one more is left
                setattr(self.slots, what, getattr(self.slots, what) - 1)
                self.slots.changed.notify_all()

    def check_deliveries(self, queue: str) -> int:
        """How many deliveries may hold a connection; `PoolTooSmall` where none may."""
        least = 2 + self.slots.listeners
        if self.pool.size < least:
            listening = ", one for the listener" if self.slots.listeners else ""
            raise PoolTooSmall(
                f"queue {queue}: each row in work holds a connection, and one stays free for handlers{listening}: the "
                f"pool has {self.pool.size} and needs {least} or more; raise pool_size, or give the table a lease "
                "column (locked_until: datetime | None = column.lease())"
            )
        return self.slots.most_by_deliveries


_slots: "weakref.WeakKeyDictionary[Pool, Slots]" = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def budget_of(pool: Pool) -> Budget:
    """The one budget that all consumers on a pool share."""
    with _lock:  # consumers that start together must share one
        return Budget(pool, _slots.setdefault(pool, Slots(pool.size)))


def sorted_by(classify: Callable[[BaseException], Trouble]) -> Callable[[BaseException], Trouble]:
    """A dialect's `classify` that knows of the budget as well."""
    return lambda error: Trouble.EXHAUSTED if isinstance(error, BudgetSpent) else classify(error)


#: Seconds to wait for one of the pool's connections: an eighth of a lease within these bounds.
SHORTEST_WAIT, LONGEST_WAIT = 0.05, 10.0


@attrs.define
class Database:
    """What a dispatcher, and an extension of leases, ask of the database.

    `now` reads the queue's clock, `classify` sorts the driver's errors. `patience`: seconds to wait for a connection,
    so that the leases of what is in flight can still be extended.
    """

    strategy: LeaseStrategy
    budget: Budget
    now: Callable[[], datetime]
    classify: Callable[[BaseException], Trouble]
    lease: float
    patience: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.patience = max(SHORTEST_WAIT, min(LONGEST_WAIT, self.lease / 8))

    def turn(self, settlements: Sequence[tuple[Claim, Settlement]], limit: int, pass_over: PassOver = NOBODY) -> Turned:
        with self.budget.for_statement(self.patience) as connection:
            turn = Turn(settlements=settlements, limit=limit, now=self.now(), pass_over=pass_over)
            return self.strategy.turn(connection, turn)

    def extend(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Extend these leases; the claims that were lost.

        Where handlers hold the whole pool, a connection beside it is made: a lease cannot wait for them.
        """
        try:
            with self.budget.for_statement(self.patience) as connection:
                return self.strategy.extend(connection, claims, self.now())
        except Exception as error:  # sorted by what the dialect makes of it
            if self.classify(error) is not Trouble.EXHAUSTED:
                raise
        with self.budget.pool.direct() as connection:
            return self.strategy.extend(connection, claims, self.now())

    def look_ahead(self, now: datetime, pass_over: PassOver = NOBODY) -> Upcoming:
        """What the queue waits for, where there was nothing to claim."""
        with self.budget.for_statement(self.patience) as connection:
            return self.strategy.look_ahead(connection, now, pass_over)

    def unfinished(self, id: Any) -> bool:
        with self.budget.for_statement(self.patience) as connection:
            return self.strategy.unfinished(connection, id)
