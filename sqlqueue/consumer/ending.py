"""Stop: what ends a run, and the wait for what is still in work.

No wait here is longer than `LOOK_UP`. Python runs a signal's handler when the main thread moves, and a thread that
waits for a lock may not: of two signals that come together the kernel can hand both to another thread (9 of 60 tries
slept on), and on Windows none ends such a wait.
"""

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from time import monotonic

from sqlqueue.consumer.subscription import Subscription
from sqlqueue.timed import take

#: Seconds between two looks up from a wait.
LOOK_UP = 0.2

#: Seconds in which a worker that has nothing more to do ends.
GRACE = 0.2

#: Seconds that giving rows back may take when the handlers are not waited for any more.
LAST_TURN = 5.0


def end(
    ends: "SimpleQueue[BaseException | None]", subscriptions: Sequence[Subscription], error: BaseException | None
) -> None:
    """The run ends: no more claims from here on, whether or not somebody waits to stop the rest.

    A SimpleQueue may be put to in a signal handler; an Event may not be set there.
    """
    for one in subscriptions:
        one.stop()
    ends.put(error)


def next_end(ends: "SimpleQueue[BaseException | None]") -> BaseException | None:
    """Wait for what ends the run: an error, or None for a stop that was asked for."""
    while True:
        try:
            return take(ends, LOOK_UP)
        except Empty:
            continue


def drain(subscriptions: Sequence[Subscription], timeout: float, hurried: Callable[[], bool]) -> int:
    """Stop claiming, wait for the handlers in work and settle them; what is left after `timeout` seconds goes back.

    Once `hurried` nothing is waited for any more. Returns how many handlers are still at work.
    """
    for one in subscriptions:
        one.stop()
    deadline = monotonic() + timeout
    if not _all(subscriptions, Subscription.join, deadline, hurried):
        for one in subscriptions:
            one.give_up()
        for one in subscriptions:
            one.join(LAST_TURN)
    _all(subscriptions, lambda one, wait: not one.running(wait), max(deadline, monotonic() + GRACE), hurried)
    return sum(one.running(0) for one in subscriptions)


def _all(
    subscriptions: Sequence[Subscription],
    done: Callable[[Subscription, float], bool],
    deadline: float,
    hurried: Callable[[], bool],
) -> bool:
    """Whether all were done before the deadline, and before anybody hurried."""
    for one in subscriptions:
        while not done(one, max(0.0, min(LOOK_UP, deadline - monotonic()))):
            if hurried() or monotonic() >= deadline:
                return False
    return True
