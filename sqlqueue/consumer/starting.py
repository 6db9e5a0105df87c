"""A start waits for a server that is not there yet, and for nothing else."""

import logging
import random
from collections.abc import Callable
from queue import Empty, SimpleQueue
from time import monotonic

from sqlqueue.dialect import Dialect, Trouble
from sqlqueue.errors import SQLQueueError
from sqlqueue.timed import take

log = logging.getLogger("sqlqueue")

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
