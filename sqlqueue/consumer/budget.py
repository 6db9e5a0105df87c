"""How many connections a broker's consumers may hold at once: the pool's size less one, so that handlers, their
queries and publishes always find one, and less one more for each listener that the pool lends. One may always be held.

Who holds one for a delivery keeps it while a handler runs. Where queues on the pool need one only for a statement, one
of several is kept for them, so that they never wait for a handler. Whoever waits is served in turn.

One queue's statements, each over a connection of the budget.
"""

import threading
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import attrs

from sqlqueue.consumer.polling import NextDue
from sqlqueue.dialect import Connection, Pool, Trouble
from sqlqueue.errors import PoolTooSmall, SQLQueueError
from sqlqueue.outcome import Settlement
from sqlqueue.strategies.claim import NOBODY, Ahead, Claim, LeaseStrategy, PassOver, Turned

#: Connections that a pool must have which lends one to a listener for good.
LEAST_WITH_LISTENER = 2


class BudgetSpent(SQLQueueError):  # noqa: N818 - named by what happened
    """The consumers on the pool hold all the connections that they may."""


@attrs.frozen(eq=False)
class Ticket:
    """Somebody who waits for a connection. `seat`: the queue that holds it while a handler runs, None for a
    statement."""

    seat: Hashable | None


@attrs.define(eq=False)
class Slots:
    """The count, shared by all consumers on one pool."""

    size: int
    held: int = 0
    seated: int = 0
    listeners: int = 0
    statements: int = 0
    changed: threading.Condition = attrs.field(factory=threading.Condition)
    _waiting: deque[Ticket] = attrs.field(factory=deque)

    @property
    def most(self) -> int:
        """Connections that may be held."""
        return max(1, self.size - 1 - self.listeners)

    @property
    def most_seated(self) -> int:
        """Those of them that deliveries may hold."""
        return self.most - 1 if self.statements and self.most > 1 else self.most

    def wanted(self, seat: Hashable) -> bool:
        """Whether anybody but this queue waits for a connection that one of its deliveries holds."""
        return any(ticket.seat != seat for ticket in tuple(self._waiting))

    @contextmanager
    def one(self, timeout: float, seat: Hashable | None = None, given_up: Callable[[], bool] = bool) -> Iterator[None]:
        ticket = Ticket(seat)
        with self.changed:  # decided: who may hold a connection
            self._waiting.append(ticket)
            try:
                self.changed.wait_for(lambda: given_up() or self._next() is ticket, timeout)
                if given_up() or self._next() is not ticket:
                    raise BudgetSpent(f"the consumers on the pool of {self.size} held all they may for {timeout:g} s")
                self._count(seat, 1)
            finally:
                self._waiting.remove(ticket)
                if self._waiting:
                    self.changed.notify_all()
        try:
            yield
        finally:
            with self.changed:  # decided: who is next
                self._count(seat, -1)
                if self._waiting:
                    self.changed.notify_all()

    def _next(self) -> Ticket | None:
        """The first of those who wait that a free connection may go to."""
        if self.held >= self.most:
            return None
        seats_free = self.seated < self.most_seated
        return next((ticket for ticket in self._waiting if seats_free or ticket.seat is None), None)

    def _count(self, seat: Hashable | None, change: int) -> None:
        self.held += change
        if seat is not None:
            self.seated += change


@attrs.frozen
class Budget:
    """Lends a pool's connections to the consumers of one broker."""

    pool: Pool
    slots: Slots

    @contextmanager
    def connection(self, timeout: float) -> Iterator[Connection]:
        """Lend one for a statement. Waits up to `timeout` seconds for the other consumers, and as long for the pool."""
        with self.slots.one(timeout), self.pool.connection(timeout) as connection:
            yield connection

    @contextmanager
    def seat(self, queue: Hashable, timeout: float, given_up: Callable[[], bool]) -> Iterator[Connection]:
        """Lend one that a delivery of this queue may hold; nobody waits any longer once `given_up()`, after
        `rouse()`."""
        with self.slots.one(timeout, queue, given_up), self.pool.connection(timeout) as connection:
            yield connection

    def rouse(self) -> None:
        """Have those who wait see whether they should."""
        with self.slots.changed:  # decided: who still waits
            self.slots.changed.notify_all()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Do with one less, which a listener has for good; `PoolTooSmall` where there would be none."""
        if self.pool.size < LEAST_WITH_LISTENER:
            raise PoolTooSmall(
                f"with notify=True the listener takes one of the pool's connections for good, and the pool has "
                f"{self.pool.size}; it needs {LEAST_WITH_LISTENER} or more, or give the broker a URL"
            )
        with self._counted("listeners"):
            yield

    @contextmanager
    def for_statements(self) -> Iterator[None]:
        """Keep one of several connections for a queue that needs them for its statements only."""
        with self._counted("statements"):
            yield

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

    def check_seats(self, queue: str) -> int:
        """How many deliveries may hold a connection; `PoolTooSmall` where none may."""
        least = 2 + self.slots.listeners
        if self.pool.size < least:
            listening = ", one for the listener" if self.slots.listeners else ""
            raise PoolTooSmall(
                f"queue {queue}: each row in work holds a connection, and one stays free for handlers{listening}: the "
                f"pool has {self.pool.size} and needs {least} or more; raise pool_size, or give the table a lease "
                "column (locked_until: datetime | None = column.lease())"
            )
        return self.slots.most_seated


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
    """What a pump asks of the database. `now` reads the queue's clock, `classify` sorts the driver's errors."""

    strategy: LeaseStrategy
    budget: Budget
    now: Callable[[], datetime]
    classify: Callable[[BaseException], Trouble]
    lease: float
    _next_due: NextDue = attrs.field(factory=NextDue)

    def turn(self, settlements: Sequence[tuple[Claim, Settlement]], limit: int, pass_over: PassOver = NOBODY) -> Turned:
        with self.budget.connection(self.patience) as connection:
            return self.strategy.turn(connection, settlements, limit, self.now(), pass_over)

    def extend(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """Extend these leases; the claims that were lost.

        Where handlers hold the whole pool, a connection beside it is made: a lease cannot wait for them.
        """
        try:
            with self.budget.connection(self.patience) as connection:
                return self.strategy.extend(connection, claims, self.now())
        except Exception as error:  # sorted by what the dialect makes of it
            if self.classify(error) is not Trouble.EXHAUSTED:
                raise
        with self.budget.pool.direct() as connection:
            return self.strategy.extend(connection, claims, self.now())

    def look_ahead(self, pass_over: PassOver = NOBODY) -> tuple[Ahead, float | None]:
        """What the queue waits for, and in how many seconds the next row falls due."""
        now = self.now()
        with self.budget.connection(self.patience) as connection:
            ahead = self.strategy.look_ahead(connection, now, pass_over)
        return ahead, self._next_due.due_in(ahead, now)

    def unfinished(self, id: Any) -> bool:
        with self.budget.connection(self.patience) as connection:
            return self.strategy.unfinished(connection, id)

    @property
    def patience(self) -> float:
        """Seconds to wait for a connection, so that the leases in hand can still be extended."""
        return max(SHORTEST_WAIT, min(LONGEST_WAIT, self.lease / 8))
