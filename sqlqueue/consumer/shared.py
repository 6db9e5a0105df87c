"""What the seats of one queue have in common, decided at its start."""

from collections.abc import Callable
from datetime import datetime

import attrs

from sqlqueue.consumer.budget import Budget
from sqlqueue.consumer.handlers import Runner
from sqlqueue.dialect import Trouble
from sqlqueue.sql import Begin
from sqlqueue.strategies.base import Seated


@attrs.define(eq=False)
class Shared:
    """What a queue's seats work with.

    `hides`: whether a row that asks to wait can be hidden for so long. `frees_others`: whether rows wait for others
    to be settled. `settles_first`: whether a row must be settled before another is looked for, since a look would
    end the handler's transaction. `transactional`: whether handlers write in their delivery's transaction, which
    `begin` opens; None where the claim's own is the handler's. `lease`: seconds that it lasts, where one holds the
    rows as well. `one_writer`: whether such a transaction keeps all others from writing, those who extend leases as
    well. `by_key`: whether this consumer keeps the order of keys. `batch`: the most rows that the handler takes at
    once, 0 where it takes them one by one.
    """

    queue: str
    strategy: Seated
    budget: Budget
    now: Callable[[], datetime]
    classify: Callable[[BaseException], Trouble]
    runner: Runner
    hides: bool
    one_at_a_time: bool
    frees_others: bool
    certain: Callable[[], bool]
    settles_first: bool = False
    transactional: bool = False
    lease: float | None = None
    one_writer: bool = False
    begin: Begin | None = None
    by_key: bool = False
    batch: int = 0
