"""LISTEN: the thread that turns notifications into wake-ups, and outlives every connection."""

import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic

import attrs
from psycopg import pq
from psycopg.conninfo import make_conninfo

from sqlqueue.dialect import Hint
from sqlqueue_postgres.lending import take
from sqlqueue_postgres.line import Bell, Line, Stopped, connect, leave
from sqlqueue_postgres.pool import OwnPool, UsersPool, parameters

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.1  # seconds
LONGEST_PAUSE = 30.0  # seconds, while there is no listening at all
LONGEST_AFTER_LISTENING = 0.5  # seconds: the server was there just now, and a new row should run within two
FEW = 3  # failures that make that pause
STEADY = 10.0  # seconds: a listener that ends later is another trouble; for so long after its end it counts as just now
LENDING_WITHIN = 1.0  # seconds that the user's pool may take; `stop` waits for it
LOG_EVERY = 60.0  # seconds between two reports of trouble


def pause(failures: int, *, listened: bool) -> float:
    """Seconds before the next try, doubling, jittered so that many listeners do not come back at once."""
    longest = LONGEST_AFTER_LISTENING if listened else LONGEST_PAUSE
    jitter = random.uniform(0.5, 1)  # noqa: S311 - no secret
    return float(min(FIRST_PAUSE * 2 ** min(failures, 20), longest) * jitter)


@attrs.define(eq=False)
class PostgresWaker:
    """Listens on the channels; everything is woken once after each LISTEN, for what was written before."""

    _pool: OwnPool | UsersPool
    _channels: Sequence[str]
    _wake: Callable[[Hint], None]
    _url: str | None = None
    _bell: Bell | None = attrs.field(default=None, init=False)
    _thread: threading.Thread | None = attrs.field(default=None, init=False)
    _failures: int = attrs.field(default=0, init=False)
    _listening_since: float | None = attrs.field(default=None, init=False)
    _listened_at: float | None = attrs.field(default=None, init=False)
    _reported_at: float | None = attrs.field(default=None, init=False)
    _out: bool = attrs.field(default=False, init=False)

    @property
    def certain(self) -> bool:
        """Never: a writer need not notify."""
        return False

    @property
    def borrows(self) -> bool:
        """From the user's pool alone."""
        return isinstance(self._pool, UsersPool)

    def start(self) -> None:
        self._bell = Bell()
        self._thread = threading.Thread(target=self._run, args=(self._bell,), name="sqlqueue-listener", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._bell is None or self._thread is None:
            return
        self._bell.ring()
        if self._thread is not threading.current_thread():
            self._thread.join()
            self._bell.close()
        self._bell = self._thread = None

    def _run(self, bell: Bell) -> None:
        while self.step(bell):
            pass

    def step(self, bell: Bell) -> bool:
        """One connection from its opening to its end, and the pause after it; False when told to stop."""
        try:
            self._serve(bell)
        except Stopped:
            return False
        except Exception as error:  # noqa: BLE001 - the loop's edge: no trouble ends the thread
            self._report(error)
        try:
            bell.wait(None, 0, monotonic() + self._pause(monotonic()))
        except Stopped:
            return False
        self._failures += 1
        return True

    def _pause(self, now: float) -> float:
        since, self._listening_since = self._listening_since, None
        if since is not None:
            self._listened_at = now
            self._failures = 0 if now - since > STEADY else self._failures
        listened = self._listened_at is not None and now - self._listened_at < STEADY
        if listened:  # the failures of a server that comes and goes do not add up
            self._failures = min(self._failures, FEW)
        return pause(self._failures, listened=listened)

    def _serve(self, bell: Bell) -> None:
        with self._connected(bell) as (pgconn, encoding):
            line = Line(pgconn=pgconn, bell=bell, hear=self._wake, encoding=encoding)
            line.listen(self._channels)
            self._listening_since = monotonic()
            self._report_return()
            self._wake(Hint())
            line.follow()

    @contextmanager
    def _connected(self, bell: Bell) -> Iterator[tuple["pq.abc.PGconn", str]]:
        """A connection of its own, or one lent by the user's pool, which goes back as it came."""
        if isinstance(self._pool, OwnPool):
            assert self._url is not None
            pgconn = connect(make_conninfo(self._url, **parameters(self._url), client_encoding="utf8"), bell)
            try:
                yield pgconn, "utf-8"
            finally:
                pgconn.finish()
            return
        self._pool.check()
        driver = take(self._pool.pool, LENDING_WITHIN, self._pool.probe)
        try:
            yield driver.pgconn, driver.info.encoding
        finally:
            leave(driver)
            self._pool.pool.putconn(driver)

    def _report(self, error: Exception) -> None:
        """Once an outage, and at most once a minute however often it comes and goes."""
        now = monotonic()
        if self._out or (self._reported_at is not None and now - self._reported_at < LOG_EVERY):
            return
        self._out, self._reported_at = True, now
        logger.warning(
            "listening for %s failed, and is tried again; until then rows wait for the poll: %s",
            ", ".join(self._channels),
            str(error).strip() or type(error).__name__,
        )

    def _report_return(self) -> None:
        if self._out:
            self._out = False
            logger.info("listening for %s again", ", ".join(self._channels))
