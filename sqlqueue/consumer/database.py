"""One queue's statements, each over a connection of the budget."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import attrs

from sqlqueue.consumer.budget import Budget
from sqlqueue.consumer.horizon import Horizon
from sqlqueue.dialect import Trouble
from sqlqueue.strategies.base import NOBODY, Ahead, Claim, Leased, PassOver, Settlement, Turned

#: Seconds to wait for one of the pool's connections: an eighth of a lease within these bounds.
SHORTEST_WAIT, LONGEST_WAIT = 0.05, 10.0


@attrs.define
class Database:
    """What a pump asks of the database. `now` reads the queue's clock, `classify` sorts the driver's errors."""

    strategy: Leased
    budget: Budget
    now: Callable[[], datetime]
    classify: Callable[[BaseException], Trouble]
    lease: float
    _horizon: Horizon = attrs.field(factory=Horizon)

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
        return ahead, self._horizon.due_in(ahead, now)

    def unfinished(self, id: Any) -> bool:
        with self.budget.connection(self.patience) as connection:
            return self.strategy.unfinished(connection, id)

    @property
    def patience(self) -> float:
        """Seconds to wait for a connection, so that the leases in hand can still be extended."""
        return max(SHORTEST_WAIT, min(LONGEST_WAIT, self.lease / 8))
