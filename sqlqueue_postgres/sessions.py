"""Whether a connection keeps its session: a pooler in transaction mode hands its servers on between transactions."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg

from sqlqueue.errors import Unsupported
from sqlqueue_postgres.adapters import Cursor, Driver
from sqlqueue_postgres.patience import Limited, NoAnswer

if TYPE_CHECKING:
    from sqlqueue_postgres.pool import OwnPool, UsersPool

logger = logging.getLogger(__name__)

PID = b"""
-- sqlqueue: which backend serves us
SELECT pg_backend_pid()
"""

#: "Does not exist" and "already exists".
FOREIGN_STATEMENT = ("26000", "42P05")
PREPARED_BY_PSYCOPG = '"_pg3_'

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
PREPARES = (
    "\na pooler in front of the server hands its connections on between transactions, and this pool's prepare "
    'statements; give the pool kwargs={"prepare_threshold": None}'
)
NO_SECOND = (
    "a pooler in front of the server had no second connection to it within {seconds:g} s while one was in use, and the "
    "advisory strategy needs two at least; give the pooler more (PgBouncer's default_pool_size, max_db_connections), "
    "connect to the server directly, or give the table a lease column (column.lease())"
)


def check_sessions(pool: "OwnPool | UsersPool") -> None:
    """Raise `Unsupported` where the pool's connections do not keep their sessions, or that cannot be found out in time.

    Without a pooler that takes one round trip; behind one a second connection, made beside the pool's, and some more.
    """
    with pool.connection() as lent:
        if reaches_server(lent.driver):
            return
        try:
            with pool.beside() as other:
                found = mixing(lent.driver, other)
        except NoAnswer as error:
            raise Unsupported(NO_SECOND.format(seconds=WITHIN)) from error
    if found is not None:
        raise Unsupported(MIXES.format(found=found) + LOCKS)


def check_own_sessions(driver: Driver, beside: Callable[[], Driver]) -> None:
    """Raise `Unsupported` where what `driver` sets for its session would be left with others. `beside` connects.

    A pooler with a single connection to spare may keep sessions: leases run on one, so it is let pass.
    """
    if reaches_server(driver):
        return
    try:
        with beside() as other:
            found = mixing(driver, other)
    except NoAnswer as error:
        logger.warning("a pooler in front of the server is taken for one that keeps sessions, untested: %s", error)
        return
    if found is not None:
        raise Unsupported(MIXES.format(found=found) + SETTINGS)


def explain(error: psycopg.Error) -> None:
    """Say in the error where a statement that psycopg prepared was another session's, what that means and the mend."""
    if error.sqlstate in FOREIGN_STATEMENT and PREPARED_BY_PSYCOPG in str(error):
        error.args = (str(error) + PREPARES,)


def reaches_server(driver: Driver) -> bool:
    """Whether there is no pooler between: one hands out numbers of its own to cancel by, not its server's pid."""
    with Limited(driver, WITHIN):
        return driver.info.backend_pid == _backend(driver)


def mixing(one: Driver, other: Driver) -> str | None:
    """What shows that these two, in autocommit mode, do not keep their sessions; None where nothing does.

    The server that a pooler used last is the next that it uses, or else the last. In the one case `other` gets that of
    `one`, in the other `one` gets another each time that it asks. Raises `NoAnswer` where none comes in time.
    """
    with Limited(one, WITHIN), Limited(other, WITHIN):
        own = _backend(one)
        for _ in range(ROUNDS):
            found = _changed(one, own) or _taken(one, other, own)
            if found is not None:
                return found
            one, other, own = other, one, _backend(other)
    return None


def _changed(driver: Driver, own: int) -> str | None:
    now = _backend(driver)
    return None if now == own else f"one connection was served by backend {own} and then by backend {now}"


def _taken(one: Driver, other: Driver, own: int) -> str | None:
    """Ask while `other` holds a transaction, and with it a server. Where that is the only one, `one` must not ask."""
    try:
        with other.transaction(force_rollback=True):
            if _backend(other) == own:
                return f"two connections at once were served by one backend, {own}"
            return _changed(one, own)
    except psycopg.errors.ProtocolViolation as error:
        if "query_wait_timeout" in str(error):
            raise NoAnswer(str(error)) from error
        return f"a transaction was refused ({str(error).strip()})"


def _backend(driver: Driver) -> int:
    # Never prepared: behind a pooler the statement might be another session's.
    [(pid,)] = Cursor(driver).execute(PID, prepare=False).fetchall()
    return int(pid)
