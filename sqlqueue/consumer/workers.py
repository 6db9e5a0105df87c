"""The two ways to work a queue off, as a consumer sees them: a dispatcher claims for all workers, or connection workers
claim for themselves.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import datetime
from typing import Protocol

import attrs

from sqlqueue.consumer.budget import Budget
from sqlqueue.consumer.health import Outage
from sqlqueue.consumer.run_handler import Runner
from sqlqueue.consumer.settling import Report
from sqlqueue.dialect import Trouble, Waker
from sqlqueue.sql import Begin
from sqlqueue.strategies.claim import ConnectionStrategy

log = logging.getLogger("sqlqueue")


#: Called with what ends the run: a handler that asked for it, a closed pool; None for a stop that somebody asked for.
OnStop = Callable[[BaseException | None], None]


class WorkerPool(Protocol):
    """Claims, handles and settles the rows of one queue. Everything but `start` may be called from any thread."""

    on_idle: Callable[[], None] | None

    @property
    def report(self) -> Report: ...

    @property
    def outage(self) -> Outage: ...

    def start(self, executor: ThreadPoolExecutor, on_stop: OnStop) -> None:
        """Start the workers' loops; `on_stop` is called with what ends the run."""
        ...

    def wake(self) -> None:
        """Claim now; a wake-up while a claim is under way counts for the next wait."""
        ...

    def stop(self) -> None:
        """Claim no more; what is in work is waited for. Safe in a signal handler."""
        ...

    def give_up(self) -> None:
        """Give back what is still in work, and end. Safe in a signal handler; `join` sees it done."""
        ...

    def let_go(self) -> None:
        """The broker is being closed: end what is under way, and hold nothing that its end would take from us."""
        ...

    def join(self, timeout: float) -> bool:
        """Wait until everything in flight is settled or given back; whether it is."""
        ...

    def running(self, timeout: float) -> int:
        """How many handlers are still at work after `timeout` seconds."""
        ...

    @property
    def stopping(self) -> bool:
        """Whether it claims no more."""
        ...

    @property
    def idle(self) -> bool:
        """Whether nothing is in flight and the last claim, begun after the last wake-up, found nothing more."""
        ...

    @property
    def held(self) -> int:
        """Rows in flight: claimed and not settled."""
        ...


@attrs.define(eq=False)
class WorkerThreads:
    """The worker threads of one queue, on the consumer's executor. `count`: how many."""

    queue: str
    count: int
    _futures: list[Future[None]] = attrs.field(factory=list, init=False)

    def start(self, executor: ThreadPoolExecutor, loop: Callable[[OnStop], None], on_stop: OnStop) -> None:
        """Run `loop` in so many threads."""
        self._futures = [executor.submit(self._work, loop, on_stop) for _ in range(self.count)]

    def _work(self, loop: Callable[[OnStop], None], on_stop: OnStop) -> None:
        """One worker's loop. What fails in it beside the handler, such as a clock of the user's, ends the run."""
        try:
            loop(on_stop)
        except BaseException as error:  # it must not leave the queue with a worker less, unseen
            log.critical("queue %s: a worker failed", self.queue, exc_info=error)
            on_stop(error)

    def running(self, timeout: float) -> int:
        """How many are still at work after `timeout` seconds."""
        return len(wait(self._futures, timeout).not_done)


@attrs.frozen(eq=False, kw_only=True)
class GroupPlan:
    """All that is decided once for the connection workers of a queue.

    `most`: rows of one claim. `hides`: whether a row that asks to wait can be hidden for so long. `by_key`: whether
    this consumer keeps the order of keys. `one_at_a_time`: whether claims that run side by side would collide.
    `settles_first`: whether rows must be settled before others are claimed, because claims come one at a time or would
    end the handler's transaction. `frees_others`: whether rows wait for others to be settled. `transactional`: whether
    handlers write in their delivery's transaction, which `begin` opens; None where the claim's own is the handler's.
    `lease`: seconds that it lasts, where one holds the rows as well. `stops_extending`: whether such a transaction
    keeps the row's lease from being extended. `waker`: who wakes the group for other programs' rows.
    """

    queue: str
    strategy: ConnectionStrategy
    budget: Budget
    runner: Runner
    now: Callable[[], datetime]
    classify: Callable[[BaseException], Trouble]
    most: int = 1
    hides: bool = True
    by_key: bool = False
    one_at_a_time: bool = False
    settles_first: bool = False
    frees_others: bool = False
    transactional: bool = False
    begin: Begin | None = None
    lease: float | None = None
    stops_extending: bool = False
    waker: Waker | None = None
