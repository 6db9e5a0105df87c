"""The life of a consumer: its states, its start, its stop, and the signals that ask for one.

A start waits for a server that is not there yet, and for nothing else. Signals are handled in the main thread alone.

No wait here is longer than `LOOK_UP`. Python runs a signal's handler when the main thread moves, and a thread that
waits for a lock may not: of two signals that come together the kernel can hand both to another thread (9 of 60 tries
slept on), and on Windows none ends such a wait.
"""

import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

import attrs

from sqlqueue.consumer.polling import take
from sqlqueue.consumer.subscription import Subscription
from sqlqueue.dialect import Dialect, Trouble
from sqlqueue.errors import SQLQueueError

log = logging.getLogger("sqlqueue")


#: Seconds between two looks up from a wait.
LOOK_UP = 0.2


class State(Enum):
    NEW = "new"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"


ALLOWED: dict[State, tuple[State, ...]] = {
    State.NEW: (State.STARTING,),
    State.STARTING: (State.RUNNING, State.STOPPED),
    State.RUNNING: (State.STOPPING,),
    State.STOPPING: (State.STOPPED,),
    State.STOPPED: (State.STARTING,),
}


@attrs.define(eq=False)
class Run:
    """One run of a consumer, from its start to its stop. `ends`: what ends it, an error or None for a stop that was
    asked for. `ending`: whether anything has."""

    subscriptions: Sequence[Subscription] = ()
    ends: "SimpleQueue[BaseException | None]" = attrs.field(factory=SimpleQueue)
    ending: bool = False

    def serve(self, subscriptions: Sequence[Subscription]) -> None:
        """The run has these subscriptions; where its end came before them they stop as well."""
        self.subscriptions = subscriptions
        if self.ending:
            for one in subscriptions:
                one.stop()

    def end(self, error: BaseException | None) -> None:
        """The run ends: no more claims from here on, whether or not somebody waits to stop the rest.

        A SimpleQueue may be put to in a signal handler; an Event may not be set there.
        """
        self.ending = True
        for one in self.subscriptions:
            one.stop()
        self.ends.put(error)

    def wait(self) -> BaseException | None:
        """Wait for what ends the run."""
        while True:
            try:
                return take(self.ends, LOOK_UP)
            except Empty:
                continue


@attrs.define
class Lifecycle:
    """Where a consumer stands, in the process that started it. `run`: the last one that was started."""

    state: State = State.NEW
    _process: int = attrs.field(factory=os.getpid)
    run: Run = attrs.field(factory=Run)

    def move(self, state: State) -> None:
        """Go to `state`, or raise `SQLQueueError` that says what is in the way."""
        if state not in ALLOWED[self.state]:
            raise SQLQueueError(f"the consumer is {self.state.value}: it can be started when it is new or stopped")
        if state is State.STARTING:
            self._process = os.getpid()
            self.run = Run()  # before the state: who sees that asks this run to stop
        self.state = state

    def request_stop(self) -> None:
        """Ask the run to stop, if there is one to ask. Safe in a signal handler."""
        if self.state in (State.STARTING, State.RUNNING) and not self.run.ending:
            self.run.end(None)

    def check_process(self) -> None:
        """Raise `SQLQueueError` in a forked child of the process that started the consumer: it has no threads here."""
        if self.state is not State.NEW and self._process != os.getpid():
            raise SQLQueueError(
                f"the consumer was started in process {self._process} and this is its child {os.getpid()}, which has "
                "none of its threads; make a consumer in the child"
            )


HANDLED = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """What was received so far. The callbacks run inside a signal handler: they may only put on a `SimpleQueue`."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def hurried(self) -> bool:
        """Whether a second signal came."""
        return len(self.received) > 1

    @contextmanager
    def installed(self, *, on_first: Callable[[], None], on_second: Callable[[], None]) -> Iterator[None]:
        """Handle the signals inside the block and put the handlers that were there before back after it."""
        self.received = []
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        process = os.getpid()

        def receive(number: int, _: Any) -> None:
            if os.getpid() != process:  # a child that a handler forked does what it would do without us
                signal.signal(number, before[number])
                os.kill(os.getpid(), number)
                return
            self.received.append(number)
            (on_first if len(self.received) == 1 else on_second)()

        # None is a handler that is not Python's own, which cannot be put back.
        before: dict[int, Any] = {number: signal.getsignal(number) or signal.SIG_DFL for number in HANDLED}
        for number in HANDLED:
            signal.signal(number, receive)
        try:
            yield
        finally:
            for number in HANDLED:
                signal.signal(number, before[number])
            self.received = []

    def leave(self, running: int) -> None:
        """End the process although handlers still run: Python would wait for their threads for ever."""
        code = 0 if len(self.received) == 1 else 128 + self.received[1]
        log.warning("%d handlers are still at work; their rows were given back, leaving with code %d", running, code)
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)


#: Seconds between tries: the first pause, doubling up to the longest.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0


class StoppedEarly(SQLQueueError):  # noqa: N818 - not an error of anybody's
    """A start that waited for its server was told to stop."""


def wait_for_server(
    prepare: Callable[[], None], dialect: Dialect, *, timeout: float, ends: "SimpleQueue[BaseException | None]"
) -> None:
    """Run `prepare`, and again while its server is away, for up to `timeout` seconds; then its error is raised.

    Any other error is raised at once. Something in `ends` ends the wait with `StoppedEarly`.
    """
    deadline = monotonic() + timeout
    pause = FIRST_PAUSE
    while True:
        try:
            return prepare()
        except Exception as error:  # sorted by what the dialect makes of it
            trouble = dialect.classify(error)
            left = deadline - monotonic()
            if trouble in (Trouble.PERMANENT, Trouble.CLOSED) or left <= 0:
                raise
            if pause == FIRST_PAUSE:
                log.warning("%s: %s (%s); waiting for it, %.1f s at most", dialect.source, trouble.value, error, left)
        _pause(min(pause * (0.5 + random.random() / 2), left), ends)  # noqa: S311 - jitter
        pause = min(pause * 2, LONGEST_PAUSE)


def _pause(seconds: float, ends: "SimpleQueue[BaseException | None]") -> None:
    try:
        error = take(ends, seconds)
    except Empty:
        return
    raise error or StoppedEarly("the consumer was stopped while it waited for its server")


#: Seconds in which a worker that has nothing more to do ends.
GRACE = 0.2

#: Seconds that giving rows back may take when the handlers are not waited for any more.
LAST_TURN = 5.0


def drain(subscriptions: Sequence[Subscription], timeout: float, hurried: Callable[[], bool]) -> int:
    """Stop claiming, wait for the handlers in work and settle them; what is left after `timeout` seconds goes back.

    Once `hurried` nothing is waited for any more. Returns how many handlers are still at work.
    """
    pools = [one.pool for one in subscriptions]
    for pool in pools:
        pool.stop()
    deadline = monotonic() + timeout
    if not _all([pool.join for pool in pools], deadline, hurried):
        for pool in pools:
            pool.give_up()
        for pool in pools:
            pool.join(LAST_TURN)
    done = [lambda wait, pool=pool: not pool.running(wait) for pool in pools]
    _all(done, max(deadline, monotonic() + GRACE), hurried)
    return sum(pool.running(0) for pool in pools)


def _all(done: Sequence[Callable[[float], bool]], deadline: float, hurried: Callable[[], bool]) -> bool:
    """Whether all were done before the deadline, and before anybody hurried. Each waits so many seconds at most."""
    for one in done:
        while not one(max(0.0, min(LOOK_UP, deadline - monotonic()))):
            if hurried() or monotonic() >= deadline:
                return False
    return True
