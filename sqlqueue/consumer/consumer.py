"""The consumer: runs the handlers of a broker's queues until it is told to stop."""

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import Empty
from time import monotonic
from types import TracebackType
from typing import Any, Protocol

import attrs

from sqlqueue.clock import Duration, seconds
from sqlqueue.consumer.budget import budget_of
from sqlqueue.consumer.health import Health
from sqlqueue.consumer.lifecycle import LOOK_UP, Lifecycle, Signals, State, StoppedEarly, drain, wait_for_server
from sqlqueue.consumer.polling import take
from sqlqueue.consumer.run_handler import Call
from sqlqueue.consumer.subscription import Subscription
from sqlqueue.dialect import Waker
from sqlqueue.errors import DeclarationError, SQLQueueError
from sqlqueue.observers import Observer
from sqlqueue.plugins import manager
from sqlqueue.queue import Queue, QueueBroker

log = logging.getLogger("sqlqueue")


class HasQueue(Protocol):
    """What works off a queue of its own, such as one of tasks."""

    queue: Queue


#: What names a queue of a broker.
Wanted = Queue | HasQueue | str


def named(queues: Iterable[Wanted] | Wanted | None) -> Sequence[Queue | str] | None:
    """The queues that one, or several, of these name; None: all."""
    if queues is None:
        return None
    several: Iterable[Any] = queues if isinstance(queues, Iterable) and not isinstance(queues, str) else [queues]
    return [getattr(one, "queue", one) for one in several]


def subscribe(
    broker: QueueBroker, wanted: Sequence[Queue | str] | None, observers: Sequence[Observer]
) -> list[Subscription]:
    """A subscription for each of the broker's queues that has a handler and is `wanted` (None: all).

    Raises `DeclarationError` for a wanted queue that is not there or has no handler, and where none is left.
    """
    served = [queue for queue in broker.queues if queue.registered]
    for one in wanted or ():
        if not any(one in _names(queue) for queue in broker.queues):
            names = ", ".join(queue.name for queue in broker.queues)
            raise DeclarationError(f"queues={one!r} is no queue of {broker!r}, which has: {names}")
        if not any(one in _names(queue) for queue in served):
            raise DeclarationError(f"queues={one!r} has no handler; register one with @queue.handler")
    chosen = [queue for queue in served if wanted is None or any(one in _names(queue) for one in wanted)]
    if not chosen:
        raise DeclarationError(
            f"no handler is registered on the queues of {broker!r}; register one with @queue.handler"
        )
    everyone = [*observers, *(one for one in manager().hook.sqlqueue_observers() if one is not None)]
    return [Subscription(queue, queue.registered, everyone, _wrapped) for queue in chosen if queue.registered]


def _names(queue: Queue) -> tuple["Queue | str", ...]:
    """What `queues` may say for this one."""
    return queue, queue.name, queue.spec.name, queue.spec.full_name


def _wrapped(queue: str, call: Call) -> Call:
    """The handler's call with what plugins wrap around it."""
    for plugin in manager().get_plugins():
        wrap: Callable[..., Call | None] | None = getattr(plugin, "sqlqueue_wrap_handler", None)
        call = (wrap(queue=queue, call=call) if wrap else None) or call
    return call


#: Among what may end a run, says that a queue went idle: all may be.
WENT_IDLE = SQLQueueError("a queue went idle")


@attrs.frozen(kw_only=True)
class Stopped:
    """What a stop did: rows `settled` since the start, rows given back unhandled, handlers that still run."""

    settled: int
    given_back: int
    abandoned: int


class Consumer:
    """Runs every handler registered on a broker, or those of the named `queues`.

    `queues`: queues, of tasks too, their names or their tables' names. `drain_timeout`: seconds that a stop waits for
    handlers in work (30). `startup_timeout`: seconds that a start waits for a server that is not there yet (30).
    `observers`: told of everything that happens. `on_start`: called by each start once all of that is open, such as to
    publish anew what was left unprocessed; where it raises, the consumer stops and the start raises that.

    `run_forever()` blocks and stops at SIGTERM and SIGINT; `start()` and `stop()`, or `with`, run it beside other work.
    """

    def __init__(
        self,
        broker: QueueBroker,
        *,
        queues: Iterable[Wanted] | Wanted | None = None,
        drain_timeout: Duration = 30.0,
        startup_timeout: Duration = 30.0,
        observers: Sequence[Observer] = (),
        on_start: Callable[[], object] | None = None,
    ) -> None:
        self._broker = broker
        self._wanted = named(queues)
        self._drain_timeout = seconds(drain_timeout, "drain_timeout")
        self._startup_timeout = seconds(startup_timeout, "startup_timeout")
        self._observers = list(observers)
        self._on_start = on_start
        self._lifecycle = Lifecycle()
        self._lock = threading.Lock()
        self._subscriptions: list[Subscription] = []
        self._waker: Waker | None = None
        self._until_stopped = ExitStack()
        self._executor: ThreadPoolExecutor | None = None
        self._signals = Signals()
        self._error: BaseException | None = None
        self._abandoned = 0

    def start(self) -> None:
        """Check the database, start the threads and return.

        Waits up to `startup_timeout` for a server that is not there yet, then raises the driver's error; a refused
        login, an unknown database or a wrong schema fail at once (`SchemaError`, `Unsupported`, or the driver's own).
        """
        self._lifecycle.check_process()
        with self._lock:  # a stop that comes meanwhile waits for what becomes of the start
            self._start()
        if self._on_start is not None:
            try:
                self._on_start()
            except BaseException:
                self.stop()
                raise

    def _start(self) -> None:
        self._lifecycle.move(State.STARTING)
        self._error, run = None, self._lifecycle.run
        if self._signals.received:  # before there was anything to stop
            self.request_stop()
        try:
            self._subscriptions = subscribe(self._broker, self._wanted, self._observers)
            run.serve(self._subscriptions)
            for subscription in self._subscriptions:
                subscription.reserve()
            self._prepare()
        except BaseException:
            self._close_waker()
            for subscription in self._subscriptions:
                subscription.close()
            self._subscriptions = []
            self._lifecycle.move(State.STOPPED)
            raise
        workers = sum(one.handler.workers for one in self._subscriptions)
        self._executor = ThreadPoolExecutor(workers, thread_name_prefix="sqlqueue-worker")
        for subscription in self._subscriptions:
            subscription.start(self._executor, run.end)
        if self._waker is not None:
            self._waker.start()
        self._lifecycle.move(State.RUNNING)
        log.info(
            "consuming %s from %s",
            ", ".join(one.queue.name for one in self._subscriptions),
            self._broker.dialect.source,
        )

    def stop(self) -> Stopped:
        """Stop gracefully and say what that did.

        No more rows are claimed, those claimed ahead go back, handlers in work are waited for up to `drain_timeout`
        seconds and settled; what is in work still goes back, and its late outcome changes nothing. Idempotent.
        """
        self._lifecycle.check_process()
        self.request_stop()  # for a start that waits for its server, and for whoever runs for ever
        while not self._lock.acquire(timeout=LOOK_UP):  # one stop at a time; a second caller waits and finds it done
            self.request_stop()  # of a start that had only just begun
        try:
            if self._lifecycle.state is State.RUNNING:
                self._lifecycle.move(State.STOPPING)
                log.info("stopping; waiting up to %g s for handlers at work", self._drain_timeout)
                self._drain()
                self._lifecycle.move(State.STOPPED)
            return Stopped(
                settled=sum(one.pool.report.settled for one in self._subscriptions),
                given_back=sum(one.pool.report.released for one in self._subscriptions),
                abandoned=self._abandoned,
            )
        finally:
            self._lock.release()

    def run_forever(self) -> None:
        """Start, work until SIGTERM, SIGINT, a `stop_worker` notification or `stop()`, and stop gracefully.

        In the main thread signals are handled while it runs: the first stops as `stop()` does, a second one gives
        the rows in work back and leaves at once. Where handlers are still at work after that, the process
        ends here, since Python cannot end their threads: with code 0, or after a second signal 128 + its number.

        Raises what ended the run, if anything did: a closed pool's error, or a handler's `KeyboardInterrupt` or
        `SystemExit`.
        """
        with self._signals.installed(on_first=self.request_stop, on_second=self._hurry):
            try:
                self.start()
            except StoppedEarly:
                return
            self._error = self._lifecycle.run.wait()
            stopped = self.stop()
            if self._error is not None and not stopped.abandoned:
                raise self._error
            if stopped.abandoned and self._signals.received:
                self._signals.leave(stopped.abandoned)

    def run_until_idle(self, timeout: Duration | None = None) -> Stopped:
        """Work until no row is due and none is in work, then stop. Rows hidden until later do not count.

        Raises `TimeoutError`, after a graceful stop, where that takes more than `timeout` seconds.
        """
        deadline = None if timeout is None else monotonic() + seconds(timeout, "timeout")
        self.start()
        ends = self._lifecycle.run.ends
        for subscription in self._subscriptions:
            subscription.pool.on_idle = lambda: ends.put(WENT_IDLE)
        idle = self._wait_idle(deadline)
        stopped = self.stop()
        if self._error is not None:
            raise self._error
        if not idle:
            raise TimeoutError(f"rows were still due or in work after {timeout} s; {stopped}")
        return stopped

    def request_stop(self) -> None:
        """Ask for a stop and return at once; safe in a signal handler or in a handler's thread."""
        self._lifecycle.request_stop()

    def __enter__(self) -> "Consumer":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def health(self) -> Health:
        """How it is doing, now; cheap, and safe from any thread."""
        ending = self._lifecycle.state is State.RUNNING and any(one.pool.stopping for one in self._subscriptions)
        return Health(
            state=State.STOPPING.value if ending else self._lifecycle.state.value,
            source=self._broker.dialect.source,
            queues=tuple(one.health() for one in self._subscriptions),
        )

    # -- start ------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        own = [one.queue.spec.full_name for one in self._subscriptions] if self._broker.notify else []
        channels = list(dict.fromkeys([*own, *(name for one in self._subscriptions for name in one.handler.channels)]))
        broker, dialect = self._broker, self._broker.dialect
        self._waker = dialect.waker(broker.pool, channels, broker.hint, notify=bool(channels))
        if self._waker is not None and self._waker.borrows:
            self._until_stopped.enter_context(budget_of(broker.pool).for_listener())

        def prepare() -> None:
            pool = broker.pool
            pool.probe()
            if any(subscription.needs_sessions for subscription in self._subscriptions):
                dialect.check_sessions(pool)
            with pool.connection() as connection:
                dialect.check_server(connection)
                dialect.check_writable(connection)
                for subscription in self._subscriptions:
                    subscription.prepare(connection, self._waker)

        wait_for_server(prepare, dialect, timeout=self._startup_timeout, ends=self._lifecycle.run.ends)

    # -- stop -------------------------------------------------------------------------------------------------

    def _wait_idle(self, deadline: float | None) -> bool:
        """Whether all queues went idle before the deadline, or something else ended the run."""
        ends = self._lifecycle.run.ends
        while not all(one.pool.idle for one in self._subscriptions):
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                return False
            try:
                end = ends.get() if left is None else take(ends, left)
            except Empty:
                continue
            if end is not WENT_IDLE:
                self._error = end
                return True
        return True

    def _drain(self) -> None:
        self._abandoned = drain(self._subscriptions, self._drain_timeout, self._signals.hurried)
        for subscription in self._subscriptions:
            subscription.close()
        self._close_waker()
        assert self._executor is not None
        self._executor.shutdown(wait=not self._abandoned, cancel_futures=True)

    def _close_waker(self) -> None:
        if self._waker is not None:
            self._waker.stop()
            self._waker = None
        self._until_stopped.close()

    def _hurry(self) -> None:
        """A second signal: give back what is in work and leave."""
        for subscription in self._subscriptions:
            subscription.give_up()
