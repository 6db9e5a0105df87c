"""A connection in a handler's hands: it writes in its delivery's transaction, and nowhere else.

The handler gets a `psycopg.Connection` of its own around the same connection of libpq, as psycopg makes it, whatever
our own is set to. When it has returned, that object is cut off: what a thread or a global of the user's still does with
it would else be done in another delivery's transaction.
"""

from collections.abc import Sequence
from typing import Any

import attrs
import psycopg
from psycopg import pq
from psycopg.pq import TransactionStatus

from sqlqueue.connection import CLOSED, ENDED, IN_USE, LOST
from sqlqueue.dialect import Row
from sqlqueue.sql import Begin, Savepoint, Step
from sqlqueue_postgres.adapters import Cursor, Driver, execute
from sqlqueue_postgres.connection import words_of
from sqlqueue_postgres.wire import Said

# What a session of ours has otherwise than it came: no limit, unless the server, the role or the URL sets one, and the
# planner's own choice. And by what it finds our tables, and may touch them: what a handler may set otherwise.
AS_IT_CAME = """
SELECT current_setting('statement_timeout'), current_setting('enable_seqscan'), current_setting('enable_bitmapscan'),
       current_setting('jit'), current_setting('search_path'), current_setting('role')
"""

# For this transaction.
RESTORE = b"""
SELECT set_config('statement_timeout', $1, true), set_config('enable_seqscan', $2, true),
       set_config('enable_bitmapscan', $3, true), set_config('jit', $4, true)
"""

# For the session, since a handler may have set it for that, and for what is left of a transaction in any case. It sets
# for itself alone where a function of this name would be found.
PUT_BACK = "SELECT pg_catalog.set_config('search_path', $1, false), pg_catalog.set_config('role', $2, false)"

# What opens a handler's transaction on a connection that is not our own, whose limit on time alone we set.
NO_LIMIT_OF_OURS = "SET LOCAL statement_timeout TO DEFAULT"
STANDING = "SELECT current_setting('search_path'), current_setting('role')"

#: "No such savepoint", and "no transaction".
NOT_THERE = ("3B001", "25P01")


@attrs.frozen
class Came:
    """How a session came. `choices`: what is ours while it is not a handler's. `standing`: what is put back behind
    one."""

    choices: Row
    standing: Row

    @classmethod
    def read(cls, driver: Driver) -> "Came":
        (row,) = execute(driver, AS_IT_CAME)
        return cls(row[:-2], row[-2:])


def opening(begin: Begin | None, came: Came) -> list[Said]:
    """What opens a handler's transaction, or goes on with one that is open, on a connection of our own."""
    begins: list[Said] = [(words_of(begin).encode(), ())] if begin else []
    return [*begins, (RESTORE, came.choices), (words_of(Savepoint.SET).encode(), ())]


def say_opening(driver: Driver, begin: Begin | None) -> Row:
    """The same for connections that are not our own: in one round trip on every libpq, as several statements in one
    text, which cannot be prepared. What is to be put back."""
    begins = [words_of(begin)] if begin else []
    text = "; ".join([*begins, NO_LIMIT_OF_OURS, STANDING, words_of(Savepoint.SET)])
    cursor = Cursor(driver).execute(text.encode(), prepare=False)
    while cursor.description is None and cursor.nextset():
        pass
    (standing,) = cursor.fetchall()
    return standing


def problem_of(driver: Driver) -> str | None:
    """What a handler did to its transaction by this connection, as far as that shows; the savepoint tells the rest."""
    if driver.closed:
        return LOST if driver.broken else CLOSED
    status = driver.pgconn.transaction_status
    if status == TransactionStatus.ACTIVE:
        return IN_USE
    return ENDED if status == TransactionStatus.IDLE else None


def ended(error: BaseException, steps: Sequence[Step]) -> bool:
    """Whether what failed is the end of a handler's part of a transaction, for it is not there any more."""
    savepoint = any(isinstance(step, Savepoint) for step in steps)
    return savepoint and isinstance(error, psycopg.Error) and error.sqlstate in NOT_THERE


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
