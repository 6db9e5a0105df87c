"""What psycopg's errors mean for a loop that could try again."""

import psycopg
from psycopg_pool import PoolClosed, PoolTimeout, TooManyRequests

from sqlqueue.dialect import Trouble

#: The connection is gone, or the server is going or coming.
LOST_STATES = (
    *("08000", "08001", "08003", "08004", "08006", "08007"),  # connection exceptions
    *("57P01", "57P02", "57P03", "53300"),  # shutdown, crash, not yet accepting, too many connections
    *("25P03", "57P05"),  # ended for idling in a transaction, or at all
    "25006",  # read only: the server became a standby
)

TRANSIENT_STATES = (
    *("40001", "40P01", "55P03"),  # serialization failure, deadlock, lock not available
    "57014",  # the statement's time was up, or somebody cancelled it
    *("53000", "53100", "53200"),  # resources, such as a full disk
)

# libpq hands no SQLSTATE out for a connection that fails: the message tells a server that refuses from one that is
# not there. A server whose messages are translated is told from the latter only by its FATAL, which most keep.
_REFUSAL = ("FATAL:", "no password supplied", "authentication method", "does not support SSL", "certificate")
_NOT_YET = (
    "starting up",
    "shutting down",
    "recovery",
    "accepting connections",
    "too many",
    "connection slots",
    "terminating connection",
    # PgBouncer, whose server is away
    "cannot connect",
    "server login has been failing",
    "server_login_retry",
    "query_wait_timeout",
)


def classify(error: BaseException) -> Trouble:
    if isinstance(error, PoolTimeout | TooManyRequests):
        return Trouble.EXHAUSTED
    if isinstance(error, PoolClosed):
        return Trouble.CLOSED
    if isinstance(error, psycopg.Error):
        return _classify_driver(error)
    if isinstance(error, OSError):
        return Trouble.LOST
    return Trouble.PERMANENT


def _classify_driver(error: psycopg.Error) -> Trouble:
    if error.sqlstate in TRANSIENT_STATES or is_stale_plan(error):
        return Trouble.TRANSIENT
    if error.sqlstate in LOST_STATES:
        return Trouble.LOST
    if error.sqlstate is None and isinstance(error, psycopg.OperationalError):
        return Trouble.PERMANENT if _is_refusal(str(error)) else Trouble.LOST
    return Trouble.PERMANENT


def _is_refusal(message: str) -> bool:
    refused = any(sign in message for sign in _REFUSAL)
    return refused and not any(sign in message for sign in _NOT_YET)


def is_stale_plan(error: psycopg.Error) -> bool:
    """Whether a prepared statement outlived the column types that it was prepared for."""
    return error.sqlstate == "0A000" and error.diag.source_function == "RevalidateCachedQuery"
