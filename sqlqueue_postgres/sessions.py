"""Whether a connection keeps its session: a pooler in transaction mode hands its servers on between transactions."""

import logging
from collections.abc import Callable

import psycopg

from sqlqueue.errors import Unsupported
from sqlqueue.sql import ROLLBACK
from sqlqueue_postgres.connection import BEGIN_COMMAND, TEXTS, NoAnswer, Transport
from sqlqueue_postgres.loan import Command, Driver

logger = logging.getLogger(__name__)

PID = b"""
-- sqlqueue: which backend serves us
SELECT pg_backend_pid()
"""

#: Seconds for an answer. A pooler that has no server to spare lets its clients wait, for two minutes by default.
WITHIN = 5.0

#: One shows a quiet pooler; others' transactions may hide it, and would have to do so each time.
ROUNDS = 4

MIXES = (
    "{found}: a pooler in front of the server hands its connections on between transactions, as PgBouncer does with "
    "pool_mode=transaction or statement. "
)
LOCKS = (
    "An advisory lock belongs to a session, so it would be left with whoever comes next. Use pool_mode=session, "
    "connect to the server directly, or give the table a lease column (column.lease()), which needs no session"
)
SETTINGS = (
    "The pool behind a URL sets up its sessions; give the broker a pool of your own that prepares no statements, "
    'Broker(ConnectionPool(url, kwargs={"prepare_threshold": None}, open=True), notify=False), use pool_mode=session, '
    "or connect to the server directly"
)
NO_SECOND = (
    "a pooler in front of the server had no second connection to it within {seconds:g} s while one was in use, and the "
    "advisory strategy needs two at least; give the pooler more (PgBouncer's default_pool_size, max_db_connections), "
    "connect to the server directly, or give the table a lease column (column.lease())"
)


def check_sessions(driver: Driver, beside: Callable[[], Driver]) -> None:
    """Raise `Unsupported` where a pool's connections do not keep their sessions, or that cannot be found out in time.

    Without a pooler that takes one round trip; behind one a second connection, made by `beside`, and some more.
    """
    try:
        found = _mixing_found(driver, beside)
    except NoAnswer as error:
        raise Unsupported(NO_SECOND.format(seconds=WITHIN)) from error
    if found is not None:
        raise Unsupported(MIXES.format(found=found) + LOCKS)


def check_own_sessions(driver: Driver, beside: Callable[[], Driver]) -> None:
    """Raise `Unsupported` where what `driver` sets for its session would be left with others. `beside` connects.

    A pooler with a single connection to spare may keep sessions: leases run on one, so it is let pass.
    """
    try:
        found = _mixing_found(driver, beside)
    except NoAnswer as error:
        logger.warning("a pooler in front of the server is taken for one that keeps sessions, untested: %s", error)
        return
    if found is not None:
        raise Unsupported(MIXES.format(found=found) + SETTINGS)


def _mixing_found(driver: Driver, beside: Callable[[], Driver]) -> str | None:
    """What shows that connections do not keep their sessions; None where nothing does.

    Without a pooler nothing can: one hands out numbers of its own to cancel by, not its server's pid. Behind one, the
    server that it used last is the next that it uses, or else the last. In the one case the second connection gets that
    of the first, in the other the first gets another each time that it asks.
    """
    one = Transport(driver, WITHIN, named=False)  # behind a pooler a prepared statement might be another session's
    own = _backend(one)
    if driver.info.backend_pid == own:
        return None
    with beside() as second:
        other = Transport(second, WITHIN, named=False)
        for _ in range(ROUNDS):
            found = _changed(one, own) or _taken(one, other, own)
            if found is not None:
                return found
            one, other, own = other, one, _backend(other)
    return None


def _changed(one: Transport, own: int) -> str | None:
    now = _backend(one)
    return None if now == own else f"one connection was served by backend {own} and then by backend {now}"


def _taken(one: Transport, other: Transport, own: int) -> str | None:
    """Ask while `other` holds a transaction, and with it a server. Where that is the only one, `one` must not ask."""
    try:
        if _backend(other, BEGIN_COMMAND) == own:
            return f"two connections at once were served by one backend, {own}"
        found = _changed(one, own)
        _backend(other, (TEXTS[ROLLBACK], ()))
    except psycopg.errors.ProtocolViolation as error:
        if "query_wait_timeout" in str(error):
            raise NoAnswer(str(error)) from error
        return f"a transaction was refused ({str(error).strip()})"
    return found


def _backend(one: Transport, *before: Command) -> int:
    rows, error = one.exchange([*before, (PID, ())])
    if error is not None:
        raise error
    return int((rows[-1] or [])[0][0])
