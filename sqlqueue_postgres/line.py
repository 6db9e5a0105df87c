"""One LISTENing connection, driven without blocking: every wait ends when told to stop, and has a limit."""

import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from time import monotonic

import attrs
import psycopg
from psycopg import pq

from sqlqueue.dialect import Hint
from sqlqueue_postgres.adapters import Driver
from sqlqueue_postgres.names import quote

CHECK_EVERY = 5.0  # seconds of silence until the peer is asked whether it is there
ANSWER_WITHIN = 5.0  # seconds for an answer; the server has a free backend for us, so only a lost peer takes longer
CONNECT_WITHIN = 10.0  # seconds
LEAVE_WITHIN = 0.5  # seconds for a goodbye

LISTEN = b"LISTEN "
UNLISTEN = b"UNLISTEN *"
CHECK = b"SELECT 1"


class Stopped(Exception):  # noqa: N818 - no error: the way out of a wait
    """The waker was told to stop while it waited."""


@attrs.define(eq=False)
class Bell:
    """Ends a wait from another thread."""

    _ears: socket.socket = attrs.field(init=False)
    _mouth: socket.socket = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._ears, self._mouth = socket.socketpair()

    def ring(self) -> None:
        self._mouth.send(b"!")

    def wait(self, fileno: int | None, events: int, until: float) -> bool:
        """Wait for `fileno` until then; whether it is ready. Raises `Stopped` when the bell rang, now or before."""
        with DefaultSelector() as selector:
            selector.register(self._ears, EVENT_READ)
            if fileno is not None:
                selector.register(fileno, events)
            ready = {key.fd for key, _ in selector.select(max(until - monotonic(), 0))}
        if self._ears.fileno() in ready:
            raise Stopped
        return bool(ready)

    def close(self) -> None:
        self._ears.close()
        self._mouth.close()


def connect(conninfo: str, bell: Bell) -> "pq.abc.PGconn":
    """A connection of libpq's; raises `Stopped` when the bell rings meanwhile."""
    pgconn = pq.PGconn.connect_start(conninfo.encode())
    until = monotonic() + CONNECT_WITHIN
    events = EVENT_WRITE
    with ExitStack() as unless_connected:
        unless_connected.callback(pgconn.finish)
        while True:
            if pgconn.status == pq.ConnStatus.BAD:
                raise psycopg.OperationalError(f"connection failed: {pgconn.get_error_message()}")
            if not bell.wait(pgconn.socket, events, until):
                raise psycopg.OperationalError(f"connection failed: no answer within {CONNECT_WITHIN:g} s")
            state = pgconn.connect_poll()
            if state == pq.PollingStatus.OK:
                pgconn.nonblocking = 1
                unless_connected.pop_all()
                return pgconn
            events = EVENT_WRITE if state == pq.PollingStatus.WRITING else EVENT_READ


@attrs.define(eq=False)
class Line:
    """Listens on a connection: `hear` gets each notification."""

    _pgconn: "pq.abc.PGconn" = attrs.field(alias="pgconn")
    _bell: Bell = attrs.field(alias="bell")
    _hear: Callable[[Hint], None] = attrs.field(alias="hear")
    _encoding: str = attrs.field(default="utf-8", alias="encoding")

    def listen(self, channels: Sequence[str]) -> None:
        """Returns when the server has confirmed all of them."""
        self.ask(b"; ".join([LISTEN + quote(channel).encode(self._encoding) for channel in channels]))

    def follow(self) -> None:
        """Hear what comes, and ask now and then whether the peer is there. Ends with an error, or `Stopped`."""
        while True:
            check_at = monotonic() + CHECK_EVERY
            while self._bell.wait(self._pgconn.socket, EVENT_READ, check_at):
                self._take_in()
            self.ask(CHECK)

    def ask(self, command: bytes, within: float = ANSWER_WITHIN) -> None:
        """Send a command and wait for its answer; an OperationalError where none comes, or a refusal."""
        self._pgconn.send_query(command)
        self._pgconn.flush()
        self.hear_out(within)

    def hear_out(self, within: float) -> None:
        """Wait for the answer to what was sent, if anything was."""
        until = monotonic() + within
        while not self._answered():
            if not self._bell.wait(self._pgconn.socket, EVENT_READ, until):
                raise psycopg.OperationalError(f"the server did not answer within {within:g} s")
            self._take_in()

    def _answered(self) -> bool:
        while not self._pgconn.is_busy():
            result = self._pgconn.get_result()
            if result is None:
                return True
            if result.status == pq.ExecStatus.FATAL_ERROR:
                raise psycopg.OperationalError(result.get_error_message())
        return False

    def _take_in(self) -> None:
        self._pgconn.consume_input()
        while notify := self._pgconn.notifies():
            self._hear(Hint(notify.relname.decode(self._encoding), notify.extra.decode(self._encoding, "replace")))


def leave(driver: Driver) -> None:
    """Make a lent connection deaf, as it came; it is closed where the server does not confirm that."""
    bell = Bell()
    line = Line(pgconn=driver.pgconn, bell=bell, hear=_ignore)
    try:
        line.hear_out(LEAVE_WITHIN)  # it may have been told to stop before a command of its own was answered
        line.ask(UNLISTEN, within=LEAVE_WITHIN)
    except psycopg.Error:
        driver.close()
    finally:
        bell.close()


def _ignore(hint: Hint) -> None:
    """A notification that came after the last one wanted."""
