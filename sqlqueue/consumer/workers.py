"""The two ways to turn, as a consumer sees them: a pump that claims for all workers, or seats that claim for
themselves.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Protocol

import attrs

from sqlqueue.consumer.health import Outage
from sqlqueue.consumer.settling import Report

log = logging.getLogger("sqlqueue")


#: Told what ends the run: a handler that asked for it, a closed pool; None for a stop that somebody asked for.
OnStop = Callable[[BaseException | None], None]


class WorkerPool(Protocol):
    """Claims, handles and settles the rows of one queue. Everything but `start` may be called from any thread."""

    on_idle: Callable[[], None] | None

    @property
    def report(self) -> Report: ...

    @property
    def outage(self) -> Outage: ...

    def start(self, executor: ThreadPoolExecutor, on_stop: OnStop) -> None:
        """Start the workers' loops; `on_stop` is told what ends the run."""
        ...

    def wake(self) -> None:
        """Look now; a wake-up while a claim is under way counts for the next wait."""
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
        """Wait until everything in hand is settled or given back; whether it is."""
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
        """Whether nothing is in hand and the last look, begun after the last wake-up, found nothing more."""
        ...

    @property
    def held(self) -> int:
        """Rows in hand: claimed and not settled."""
        ...


@attrs.define(eq=False)
class WorkerThreads:
    """The worker loops of one queue, on the consumer's executor."""

    queue: str
    count: int
    _futures: list[Future[None]] = attrs.field(factory=list, init=False)

    def start(self, executor: ThreadPoolExecutor, loop: Callable[[OnStop], None], on_stop: OnStop) -> None:
        self._futures = [executor.submit(self._work, loop, on_stop) for _ in range(self.count)]

    def _work(self, loop: Callable[[OnStop], None], on_stop: OnStop) -> None:
        """A worker's loop; what fails in it beside the handler, such as a clock of the user's, ends the run."""
        try:
            loop(on_stop)
        except BaseException as error:  # it must not leave the queue with a worker less, unseen
            log.critical("queue %s: a worker failed", self.queue, exc_info=error)
            on_stop(error)

    def running(self, timeout: float) -> int:
        """How many are still at work after `timeout` seconds."""
        return len(wait(self._futures, timeout).not_done)
