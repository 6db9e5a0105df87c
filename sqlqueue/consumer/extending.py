"""Keep: the statement that extends the leases of all that is in work, over whatever connection can be had."""

from collections.abc import Callable, Sequence
from datetime import datetime

from sqlqueue.consumer.budget import Budget
from sqlqueue.dialect import Trouble
from sqlqueue.strategies.base import Claim, Strategy


def extend(
    strategy: Strategy,
    budget: Budget,
    claims: Sequence[Claim],
    *,
    now: Callable[[], datetime],
    classify: Callable[[BaseException], Trouble],
    timeout: float,
) -> Sequence[Claim]:
    """Extend these leases; the claims that were lost.

    Where handlers hold the whole pool for `timeout` seconds, a connection beside it is made: leases cannot wait for
    handlers that wait for nothing.
    """
    try:
        with budget.connection(timeout) as connection:
            return strategy.extend(connection, claims, now())
    except Exception as error:  # sorted by what the dialect makes of it
        if classify(error) is not Trouble.EXHAUSTED:
            raise
    with budget.pool.direct() as connection:
        return strategy.extend(connection, claims, now())
