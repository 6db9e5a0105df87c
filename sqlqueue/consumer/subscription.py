"""One queue's handler at work: built when the consumer starts, from the declaration and what the database says."""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Thread
from typing import Any

from sqlqueue.clock import Clock, HostClock
from sqlqueue.column import Role
from sqlqueue.consumer.budget import budget_of, sorted_by
from sqlqueue.consumer.database import Database
from sqlqueue.consumer.handlers import Runner, caller
from sqlqueue.consumer.hands import Hands
from sqlqueue.consumer.health import QueueHealth
from sqlqueue.consumer.keeper import Keeper
from sqlqueue.consumer.notices import Notices
from sqlqueue.consumer.pace import Pace
from sqlqueue.consumer.pump import Pump
from sqlqueue.delivery import Delivery
from sqlqueue.dialect import ColumnFacts, Connection, Dialect, Hint
from sqlqueue.errors import Unsupported
from sqlqueue.handler import Handler
from sqlqueue.observer import Observer
from sqlqueue.queue import Queue
from sqlqueue.rows import Reader, reader
from sqlqueue.schema import check_statements, check_table, warn_of_index, warn_of_skew
from sqlqueue.settling import Rules
from sqlqueue.spec import TableSpec
from sqlqueue.strategies.base import Strategy
from sqlqueue.strategies.lease import Lease
from sqlqueue.words import Words

log = logging.getLogger("sqlqueue")

Call = Callable[[Any, Delivery], Any]


def check_served(dialect: Dialect, spec: TableSpec) -> None:
    """Raise `Unsupported` for a declaration that this database, or this release, does not serve."""
    where = f"table {spec.full_name!r} in {dialect.source}"
    if spec.fifo:
        raise Unsupported(f"{where}: FIFO order over all instances is not served by this release; leave out fifo=True")
    if spec.has(Role.LEASE):
        return
    if spec.advisory_lock is None and not dialect.capabilities.row_locks:
        raise Unsupported(
            f"{where}: the database has no row locks to hold a row by; add a lease column "
            "(locked_until: datetime | None = column.lease()) or give advisory_lock="
        )
    held = "an advisory lock" if spec.advisory_lock is not None else "a row lock"
    raise Unsupported(
        f"{where}: claiming by {held} is not served by this release; add a lease column "
        "(locked_until: datetime | None = column.lease())"
    )


class Subscription:
    """A queue, its handler, its pump and its workers."""

    def __init__(
        self, queue: Queue, handler: Handler, observers: Sequence[Observer], wrap: Callable[[str, Call], Call]
    ) -> None:
        check_served(queue.broker.dialect, queue.spec)
        self.queue, self.handler = queue, handler
        self.notices = Notices(queue.name, observers)
        self._clock: Clock = queue.spec.clock if isinstance(queue.spec.clock, Clock) else HostClock()
        self._call = wrap(queue.name, caller(handler))
        self._pump: Pump | None = None
        self._thread: Thread | None = None
        self._workers: list[Future[None]] = []
        self._hands = Hands(workers=handler.workers, prefetch=handler.prefetch, by_key=handler.by_key)

    # -- start ------------------------------------------------------------------------------------------------

    def prepare(self, connection: Connection, certain: Callable[[], bool]) -> None:
        """Check the database against the declaration and build the pump."""
        broker, spec, handler = self.queue.broker, self.queue.spec, self.handler
        dialect = broker.dialect
        facts = check_table(dialect, connection, spec)
        read = reader(dialect, spec, broker.codec, handler.kind)
        strategy = self._strategy(facts, read)
        check_statements(dialect, connection, spec, strategy.statements())
        warn_of_index(dialect, connection, spec, strategy.claim, grouped=self.queue.group is not None)
        warn_of_skew(dialect, connection, spec, handler.lease)
        self._runner = self._make_runner(read)
        self._pump = Pump(
            queue=self.queue.name,
            database=Database(
                strategy, budget_of(broker.pool), self._clock.now, sorted_by(dialect.classify), handler.lease
            ),
            runner=self._runner,
            hands=self._hands,
            pace=Pace(handler.poll_interval),
            keeper=Keeper(handler.lease),
            notices=self.notices,
            certain=certain,
        )

    def _strategy(self, facts: Mapping[str, ColumnFacts], read: Reader) -> Strategy:
        spec, handler = self.queue.spec, self.handler
        lease = spec.role(Role.LEASE)
        assert lease is not None
        return Lease(
            Words(self.queue.broker.dialect, spec, grouped=self.queue.group is not None),
            columns=read.columns,
            seconds=handler.lease,
            most=self._hands.capacity,
            cap=handler.max_attempts,
            group=self.queue.group,
            precision=facts[lease.name].precision,
            by_key=handler.by_key,
        )

    def _make_runner(self, read: Reader) -> Runner:
        handler = self.handler
        rules = Rules(
            max_attempts=handler.max_attempts,
            retry=handler.retry,
            on_decode_error=handler.on_decode_error,
            parks=self.queue.spec.has(Role.ERROR),
        )
        return Runner(
            queue=self.queue.name,
            reader=read,
            rules=rules,
            now=self._clock.now,
            notices=self.notices,
            call=self._call,
        )

    @property
    def pump(self) -> Pump:
        assert self._pump is not None, "prepare() comes first"
        return self._pump

    def start(self, executor: ThreadPoolExecutor, on_stop: Callable[[BaseException | None], None]) -> None:
        """Start the pump's thread and the worker loops; `on_stop` is told when a handler or the pump ends the run."""
        self._on_stop = on_stop
        watch = getattr(self._clock, "on_change", None)
        if watch is not None:
            watch(self.pump.wake)
        self._workers = [executor.submit(self._work) for _ in range(self.handler.workers)]
        self._thread = Thread(target=self._run, name=f"sqlqueue-pump {self.queue.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.pump.run()
        except BaseException as error:  # a bug of ours must end the run, not leave it standing still
            log.critical("queue %s: its pump failed", self.queue.name, exc_info=error)
            self.pump.fatal = error
        finally:
            for _ in range(self.handler.workers):
                self._hands.ready.put(None)
            if self.pump.fatal is not None:
                self._on_stop(self.pump.fatal)

    def _work(self) -> None:
        """A worker's loop; what fails in it beside the handler, such as a clock of the user's, ends the run."""
        try:
            self._work_off()
        except BaseException as error:  # it must not leave the queue with a worker less, unseen
            log.critical("queue %s: a worker failed", self.queue.name, exc_info=error)
            self._on_stop(error)

    def _work_off(self) -> None:
        """Take a row, run the handler, hand back what became of it, until there is no more."""
        ready, run, finish = self._hands.ready, self._runner.run, self.pump.finish
        while (work := ready.get()) is not None:
            if work.delivery.lost:  # found out before its handler began
                continue
            finished = run(work)
            if finished.stop is not None:
                self._on_stop(finished.stop)  # first, so that the row that goes back is not claimed again
            finish(finished)
            del work, finished

    # -- from other threads -----------------------------------------------------------------------------------

    def hint(self, hint: Hint) -> None:
        """Look now, if the hint is for this queue."""
        if hint.channel is not None and hint.channel != self.queue.spec.full_name:
            return
        if not hint.payload or self.queue.group is None or hint.payload == self.queue.group:
            self.pump.wake()

    @property
    def stopping(self) -> bool:
        """Whether it claims no more."""
        return self._pump is not None and self._pump.stopping

    def stop(self) -> None:
        if self._pump is not None:
            self._pump.stop()

    def give_up(self) -> None:
        if self._pump is not None:
            self._pump.give_up()

    def join(self, timeout: float | None) -> bool:
        """Wait for the pump to end; whether it did."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def running(self, timeout: float) -> int:
        """How many handlers are still at work after `timeout` seconds."""
        return len(wait(self._workers, timeout).not_done)

    def health(self) -> QueueHealth:
        pump = self._pump
        return QueueHealth(
            name=self.queue.name,
            workers=self.handler.workers,
            in_hand=pump.held if pump else 0,
            settled=pump.ledger.settled if pump else 0,
            trouble=pump.outage.error if pump else None,
        )
