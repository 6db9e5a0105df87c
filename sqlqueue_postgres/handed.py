"""A connection in a handler's hands: it writes in its delivery's transaction, and nowhere else.

The handler gets a `psycopg.Connection` of its own around the same connection of libpq, as psycopg makes it, whatever
our own is set to. When it has returned, that object is cut off: what a thread or a global of the user's still does with
it would else be done in another delivery's transaction.
"""

from typing import Any

import attrs
import psycopg
from psycopg import pq
from psycopg.pq import TransactionStatus

from sqlqueue.dialect import Row
from sqlqueue.sql import Begin, Savepoint
from sqlqueue_postgres.adapters import Driver, execute
from sqlqueue_postgres.connection import words_of
from sqlqueue_postgres.wire import Said

# What a session of ours has otherwise than it came: no limit, unless the server, the role or the URL sets one, and the
# planner's own choice.
AS_IT_CAME = """
SELECT current_setting('statement_timeout'), current_setting('enable_seqscan'), current_setting('enable_bitmapscan'),
       current_setting('jit')
"""

# For this transaction.
RESTORE = b"""
SELECT set_config('statement_timeout', $1, true), set_config('enable_seqscan', $2, true),
       set_config('enable_bitmapscan', $3, true), set_config('jit', $4, true)
"""

#: The same of a connection that is not our own, whose limit alone we set.
NO_LIMIT_OF_OURS = "SET LOCAL statement_timeout TO DEFAULT"

ENDED = "it committed or rolled back its delivery's transaction itself, which is for its outcome to do"
CLOSED = "it closed its delivery's connection"
LOST = "its delivery's connection was lost"
IN_USE = "a thread still uses its delivery's connection after it returned"


def opening(begin: Begin | None, as_it_came: Row) -> list[Said]:
    """What opens a handler's transaction, or goes on with one that is open, on a connection of our own."""
    begins: list[Said] = [(words_of(begin).encode(), ())] if begin else []
    return [*begins, (RESTORE, as_it_came), (words_of(Savepoint.SET).encode(), ())]


def say_opening(driver: Driver, begin: Begin | None) -> None:
    """The same, a round trip each: for connections that are not our own."""
    for text in [*([words_of(begin)] if begin else []), NO_LIMIT_OF_OURS, words_of(Savepoint.SET)]:
        execute(driver, text)


def problem_of(driver: Driver) -> str | None:
    """What a handler did to its transaction by this connection, as far as that shows; the savepoint tells the rest."""
    if driver.closed:
        return LOST if driver.broken else CLOSED
    status = driver.pgconn.transaction_status
    if status == TransactionStatus.ACTIVE:
        return IN_USE
    return ENDED if status == TransactionStatus.IDLE else None


def _cut() -> "pq.abc.PGconn":
    """A connection that never was one: everything that is tried on it says that it is closed."""
    cut = pq.PGconn.connect_start(b"cut off")
    cut.finish()
    return cut


_CUT_OFF = _cut()


@attrs.define(eq=False)
class Handed:
    """What a handler holds of one of our own connections."""

    _driver: Driver = attrs.field(alias="driver")
    _connection: "psycopg.Connection[Any]" = attrs.field(init=False)
    _hears: Any = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        pgconn = self._driver.pgconn
        self._hears = pgconn.notice_handler, pgconn.notify_handler
        self._connection = psycopg.Connection(pgconn)
        # At a rollback psycopg forgets all that the session has prepared, and with it our own statements.
        self._connection.prepare_threshold = None

    @property
    def connection(self) -> "psycopg.Connection[Any]":
        return self._connection

    def take_back(self) -> str | None:
        """Cut it off. What the handler did that must not be, in words; then nobody knows what the server does with
        it, so the connection is closed where it is in use."""
        free = self._connection.lock.acquire(blocking=False)
        try:
            problem = problem_of(self._connection) if free else IN_USE
            if free:
                self._connection.pgconn = _CUT_OFF
        finally:
            if free:
                self._connection.lock.release()
        if problem == IN_USE:
            self._driver.close()
        elif not self._driver.closed:
            self._driver.pgconn.notice_handler, self._driver.pgconn.notify_handler = self._hears
        return problem
