"""How long we wait for an answer: a peer that fell silent, but still takes what is sent, is told by nothing else.

The server ends a statement of ours in time, and TCP a connection whose peer is gone. Behind a proxy neither may hold.
"""

import select
from collections.abc import Generator
from inspect import signature
from time import monotonic
from types import TracebackType
from typing import Any

import psycopg
from psycopg import waiting

from sqlqueue_postgres.adapters import Driver

#: Seconds beside the statement's own time, for the way there and back.
GRACE = 5.0

#: Seconds between two looks at the clock: psycopg's own interval.
INTERVAL = 0.1


#: Before 3.3 psycopg's own wait, in C, tells its generator nothing while nothing comes; the ones in Python do.
OWN_WAIT_TELLS = "timeout" in signature(psycopg.Connection.wait).parameters
wait_in_python: Any = waiting.wait_poll if hasattr(select, "poll") else waiting.wait_selector


class NoAnswer(psycopg.OperationalError):
    """Nothing came in time."""


class Limited:
    """Inside, each wait for an answer on `driver` ends after so many seconds, with an error and the connection."""

    __slots__ = ("_driver", "_seconds")

    def __init__(self, driver: Driver, seconds: float) -> None:
        self._driver, self._seconds = driver, seconds

    def __enter__(self) -> None:
        self._driver.wait = self._wait  # type: ignore[method-assign, assignment]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._driver.wait  # what is left is the class's own

    def _wait(self, steps: Generator[Any, Any, Any], interval: float = INTERVAL, **options: Any) -> Any:
        watched = self._watched(steps)
        if OWN_WAIT_TELLS:
            return type(self._driver).wait(self._driver, watched, interval, **options)
        try:
            return wait_in_python(watched, self._driver.pgconn.socket, interval)
        except KeyboardInterrupt:
            self._driver.close()  # psycopg's own would cancel the statement
            raise

    def _watched(self, steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        """What psycopg waits for, given up where nothing comes in time."""
        until = monotonic() + self._seconds
        try:
            wanted = next(steps)
            while True:
                ready = yield wanted
                if not ready and monotonic() > until:
                    self._driver.close()
                    raise NoAnswer(f"the server did not answer within {self._seconds:g} s")
                wanted = steps.send(ready)
        except StopIteration as done:
            return done.value
