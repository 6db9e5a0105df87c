"""What a database promises, what it says of a column, and what its errors mean."""

from enum import Enum

import attrs


@attrs.frozen(kw_only=True)
class Capabilities:
    """What a database promises; `sqlqueue.testing.contract` tests each promise.

    `row_locks`: `FOR UPDATE SKIP LOCKED`. `concurrent_claims`: claims that run together take different rows rather
    than wait for each other. `session_locks`: locks that live as long as a connection. `notifies`: other programs
    can send a wake-up. `watches`: the waker sees every commit. `dead_rows`: deleted rows stay in the indexes for a
    while. `time_precision`: seconds that a moment can be told apart by.
    """

    row_locks: bool
    concurrent_claims: bool
    session_locks: bool
    notifies: bool
    watches: bool = False
    dead_rows: bool = False
    time_precision: float = 1e-6


class Trouble(Enum):
    """What an exception means for a consumer's loop."""

    TRANSIENT = "the statement may succeed when it is tried again"
    LOST = "the server or the connection is gone"
    EXHAUSTED = "the pool had no connection to lend in time"
    CLOSED = "the pool was closed by its owner"
    PERMANENT = "trying again will not help until somebody mends it"


@attrs.frozen(kw_only=True)
class ColumnFacts:
    """What the database says of a column. `type` is its own word for it, in lower case without arguments;
    `precision` the decimal digits of a second that a moment keeps, where the type says so."""

    type: str
    nullable: bool
    precision: int | None = None
    has_default: bool = False
