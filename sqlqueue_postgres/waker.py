"""LISTEN: the thread that turns notifications into wake-ups, and outlives every connection.

The connection is driven without blocking: every wait ends when the waker is asked to stop, and has a limit.
"""

import logging
import random
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from time import monotonic

import attrs
import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from sqlqueue.dialect import Hint
from sqlqueue_postgres.ddl import quote
from sqlqueue_postgres.loan import Driver
from sqlqueue_postgres.pool import OwnPool, UsersPool, parameters, take

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.1  # seconds
LONGEST_PAUSE = 30.0  # seconds, while there is no listening at all
LONGEST_AFTER_LISTENING = 0.5  # seconds: the server was there just now, and a new row should run within two
FEW = 3  # failures that make that pause
STEADY = 10.0  # seconds: a listener that ends later is another trouble; for so long after its end it counts as just now
LENDING_WITHIN = 1.0  # seconds that the user's pool may take; `stop` waits for it
LOG_EVERY = 60.0  # seconds between two reports of trouble

CHECK_EVERY = 5.0  # seconds of silence until the peer is asked whether it is there
ANSWER_WITHIN = 5.0  # seconds for an answer; the server has a free backend for us, so only a lost peer takes longer
CONNECT_WITHIN = 10.0  # seconds
UNLISTEN_WITHIN = 0.5  # seconds for a goodbye

LISTEN = b"LISTEN "
UNLISTEN = b"UNLISTEN *"
CHECK = b"SELECT 1"


class StopRequested(Exception):  # noqa: N818 - no error: the way out of a wait
    """The waker was asked to stop while it waited."""


@attrs.define(eq=False)
class StopSignal:
    """Ends a wait from another thread."""

    _receiver: socket.socket = attrs.field(init=False)
    _sender: socket.socket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()

    def set(self) -> None:
        self._sender.send(b"!")

    def wait(self, fileno: int | None, events: int, until: float) -> bool:
        """Wait for `fileno` until then; whether it is ready. Raises `StopRequested` once a stop was asked for."""
        with DefaultSelector() as selector:
            selector.register(self._receiver, EVENT_READ)
            if fileno is not None:
                selector.register(fileno, events)
            ready = {key.fd for key, _ in selector.select(max(until - monotonic(), 0))}
        if self._receiver.fileno() in ready:
            raise StopRequested
        return bool(ready)

    def close(self) -> None:
        self._receiver.close()
        self._sender.close()


def connect(conninfo: str, stop: StopSignal) -> "pq.abc.PGconn":
    """A connection of libpq's; raises `StopRequested` where the signal is set meanwhile."""
    pgconn = pq.PGconn.connect_start(conninfo.encode())
    until = monotonic() + CONNECT_WITHIN
    events = EVENT_WRITE
    with ExitStack() as unless_connected:
        unless_connected.callback(pgconn.finish)
        while True:
            if pgconn.status == pq.ConnStatus.BAD:
                raise psycopg.OperationalError(f"connection failed: {pgconn.get_error_message()}")
            if not stop.wait(pgconn.socket, events, until):
                raise psycopg.OperationalError(f"connection failed: no answer within {CONNECT_WITHIN:g} s")
            state = pgconn.connect_poll()
            if state == pq.PollingStatus.OK:
                pgconn.nonblocking = 1
                unless_connected.pop_all()
                return pgconn
            events = EVENT_WRITE if state == pq.PollingStatus.WRITING else EVENT_READ


@attrs.define(eq=False)
class Listener:
    """Listens on a connection: `on_hint` gets each notification."""

    _pgconn: "pq.abc.PGconn" = attrs.field(alias="pgconn")
    _stop: StopSignal = attrs.field(alias="stop")
    _on_hint: Callable[[Hint], None] = attrs.field(alias="on_hint")
    _encoding: str = attrs.field(default="utf-8", alias="encoding")

    def listen(self, channels: Sequence[str]) -> None:
        """Returns when the server has confirmed all of them."""
        self.ask(b"; ".join([LISTEN + quote(channel).encode(self._encoding) for channel in channels]))

    def follow(self) -> None:
        """Hear what comes, and ask now and then whether the peer is there. Ends with an error, or `StopRequested`."""
        while True:
            check_at = monotonic() + CHECK_EVERY
            while self._stop.wait(self._pgconn.socket, EVENT_READ, check_at):
                self._read()
            self.ask(CHECK)

    def ask(self, command: bytes, within: float = ANSWER_WITHIN) -> None:
        """Send a command and wait for its answer; an OperationalError where none comes, or a refusal."""
        self._pgconn.send_query(command)
        self._pgconn.flush()
        self.wait_for_answer(within)

    def wait_for_answer(self, within: float) -> None:
        """Wait for the answer to what was sent, if anything was."""
        until = monotonic() + within
        while not self._answered():
            if not self._stop.wait(self._pgconn.socket, EVENT_READ, until):
                raise psycopg.OperationalError(f"the server did not answer within {within:g} s")
            self._read()

    def _answered(self) -> bool:
        while not self._pgconn.is_busy():
            result = self._pgconn.get_result()
            if result is None:
                return True
            if result.status == pq.ExecStatus.FATAL_ERROR:
                raise psycopg.OperationalError(result.get_error_message())
        return False

    def _read(self) -> None:
        self._pgconn.consume_input()
        while notify := self._pgconn.notifies():
            self._on_hint(Hint(notify.relname.decode(self._encoding), notify.extra.decode(self._encoding, "replace")))


def unlisten(driver: Driver) -> None:
    """End the listening of a lent connection; it is closed where the server does not confirm that."""
    stop = StopSignal()
    listener = Listener(pgconn=driver.pgconn, stop=stop, on_hint=_ignore)
    try:
        listener.wait_for_answer(UNLISTEN_WITHIN)  # a stop may have come before a command of its own was answered
        listener.ask(UNLISTEN, within=UNLISTEN_WITHIN)
    except psycopg.Error:
        driver.close()
    finally:
        stop.close()


def _ignore(hint: Hint) -> None:
    """A notification that came after the last one wanted."""


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
    _stop: StopSignal | None = attrs.field(default=None, init=False)
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
        self._stop = StopSignal()
        self._thread = threading.Thread(target=self._run, args=(self._stop,), name="sqlqueue-listener", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._stop is None or self._thread is None:
            return
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
            self._stop.close()
        self._stop = self._thread = None

    def _run(self, stop: StopSignal) -> None:
        while self.step(stop):
            pass

    def step(self, stop: StopSignal) -> bool:
        """One connection from its opening to its end, and the pause after it; False when asked to stop."""
        try:
            self._serve(stop)
        except StopRequested:
            return False
        except Exception as error:  # noqa: BLE001 - the loop's edge: no trouble ends the thread
            self._report(error)
        try:
            stop.wait(None, 0, monotonic() + self._pause(monotonic()))
        except StopRequested:
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

    def _serve(self, stop: StopSignal) -> None:
        with self._connected(stop) as (pgconn, encoding):
            listener = Listener(pgconn=pgconn, stop=stop, on_hint=self._wake, encoding=encoding)
            listener.listen(self._channels)
            self._listening_since = monotonic()
            self._report_return()
            self._wake(Hint())
            listener.follow()

    @contextmanager
    def _connected(self, stop: StopSignal) -> Iterator[tuple["pq.abc.PGconn", str]]:
        """A connection of its own, or one lent by the user's pool, which goes back as it came."""
        if isinstance(self._pool, OwnPool):
            assert self._url is not None
            pgconn = connect(make_conninfo(self._url, **parameters(self._url), client_encoding="utf8"), stop)
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
            unlisten(driver)
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
