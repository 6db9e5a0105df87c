"""A connection that is lent to a handler: it writes in its delivery's transaction, and nowhere else.

Of our own pool a handler gets a `psycopg.Connection` of its own around the same connection of libpq, as psycopg makes
it, whatever ours is set to. When it has returned, that object is cut off: what a thread or a global of the user's still
does with it would else be done in another delivery's transaction. Of the user's pool it gets the user's own connection:
of the class that their pool makes, with what they set up.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs
import psycopg
from psycopg import pq
from psycopg.pq import PipelineStatus, TransactionStatus

from sqlqueue.connection import CLOSED, ENDED, IN_USE, LOST, TakenBack

Driver = psycopg.Connection[Any]

#: A statement and the values of its placeholders.
Command = tuple[bytes, Sequence[Any]]

# What a session of ours has otherwise than it came: no limit, unless the server, the role or the URL sets one, and the
# planner's own choice.
AS_IT_CAME = """
SELECT current_setting('statement_timeout'), current_setting('enable_seqscan'), current_setting('enable_bitmapscan'),
       current_setting('jit')
"""

# For this transaction. The last two are by what a session finds our tables, and may touch them: what a handler may set
# otherwise.
RESTORE = b"""
SELECT set_config('statement_timeout', $1, true), set_config('enable_seqscan', $2, true),
       set_config('enable_bitmapscan', $3, true), set_config('jit', $4, true),
       current_setting('search_path'), current_setting('role')
"""

# The same where the limit on time alone is ours, and for a transaction only.
NO_LIMIT_OF_OURS: Sequence[Command] = (
    (b"SET LOCAL statement_timeout TO DEFAULT", ()),
    (b"SELECT current_setting('search_path'), current_setting('role')", ()),
)

# For the session, since a handler may have set it for that, and for what is left of a transaction in any case. It sets
# for itself alone where a function of this name would be found.
PUT_BACK = b"SELECT pg_catalog.set_config('search_path', $1, false), pg_catalog.set_config('role', $2, false)"

#: What a program can set on a psycopg connection: at any time, and outside of a transaction only.
ANY_TIME = ("row_factory", "cursor_factory", "server_cursor_factory", "prepare_threshold", "prepared_max")
WHEN_IDLE = ("autocommit", "isolation_level", "read_only", "deferrable")


class Loan(Protocol):
    """How a handler gets a connection."""

    @property
    def opening(self) -> Sequence[Command]:
        """What makes its transaction as the session came; the last one returns the search path and the role at last."""
        ...

    def lend(self) -> Any:
        """What the handler gets."""
        ...

    def take_back(self) -> TakenBack: ...

    def set_back(self) -> None:
        """The transaction has ended."""
        ...


@attrs.define(eq=False)
class OwnLoan:
    """Of a connection of our own pool."""

    opening: Sequence[Command]
    _driver: Driver
    _lent: "psycopg.Connection[Any] | None" = attrs.field(default=None, init=False)
    _handlers: Any = attrs.field(default=None, init=False)

    def lend(self) -> "psycopg.Connection[Any]":
        pgconn = self._driver.pgconn
        self._handlers = pgconn.notice_handler, pgconn.notify_handler
        self._lent = psycopg.Connection(pgconn)
        # At a rollback psycopg forgets all that the session has prepared, and with it our own statements.
        self._lent.prepare_threshold = None
        return self._lent

    def take_back(self) -> TakenBack:
        """Cut it off. A connection that is in use is closed, for nobody knows what the server does with it."""
        assert self._lent is not None, "nothing was lent"
        lent, self._lent = self._lent, None
        problem: str | None = IN_USE
        if lent.lock.acquire(blocking=False):
            problem = _problem_of(lent)
            lent.pgconn = _CUT_OFF
            lent.lock.release()
        if problem == IN_USE:
            self._driver.close()
        elif not self._driver.closed:
            self._driver.pgconn.notice_handler, self._driver.pgconn.notify_handler = self._handlers
        return TakenBack(problem, last=problem is not None)

    def set_back(self) -> None:
        """The handler's own object had its settings."""


@attrs.define(eq=False)
class UsersLoan:
    """Of a connection of the user's pool."""

    _driver: Driver
    _attributes: Mapping[str, Any] = attrs.field(factory=dict, init=False)

    @property
    def opening(self) -> Sequence[Command]:
        return NO_LIMIT_OF_OURS

    def lend(self) -> Driver:
        self._attributes = {name: getattr(self._driver, name) for name in (*ANY_TIME, *WHEN_IDLE)}
        return self._driver

    def take_back(self) -> TakenBack:
        if not self._driver.lock.acquire(blocking=False):
            self._driver.close()
            return TakenBack(IN_USE, last=True)
        self._driver.lock.release()
        self._set(ANY_TIME)
        problem = _problem_of(self._driver)
        if problem == IN_USE:
            self._driver.close()
        elif problem == ENDED:
            self._set(WHEN_IDLE)  # a transaction of ours would begin as the handler chose
        return TakenBack(problem, last=problem is not None)

    def set_back(self) -> None:
        self._set(WHEN_IDLE)

    def _set(self, names: Iterable[str]) -> None:
        for name in names if self._attributes and not self._driver.closed else ():
            if getattr(self._driver, name) != self._attributes[name]:
                setattr(self._driver, name, self._attributes[name])


def _problem_of(driver: Driver) -> str | None:
    """What a handler did to its transaction by this connection, as far as that shows; the savepoint tells the rest."""
    if driver.closed:
        return LOST if driver.broken else CLOSED
    status = driver.pgconn.transaction_status
    if status == TransactionStatus.ACTIVE or driver.pgconn.pipeline_status != PipelineStatus.OFF:
        return IN_USE
    return ENDED if status == TransactionStatus.IDLE else None


def _cut() -> "pq.abc.PGconn":
    """A connection that never was one: everything that is tried on it says that it is closed."""
    cut = pq.PGconn.connect_start(b"cut off")
    cut.finish()
    return cut


_CUT_OFF = _cut()
