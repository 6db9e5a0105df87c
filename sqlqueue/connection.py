"""What a dialect provides: connections, their pool, and the waker."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import attrs

from sqlqueue.errors import SQLQueueError
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Begin, Call, Statement, Step

Row = tuple[Any, ...]


@attrs.frozen(kw_only=True)
class PoolSettings:
    """How a dialect opens a pool: connections at most, and seconds that a statement of ours may take."""

    size: int = 10
    statement_timeout: float = 10.0


@attrs.frozen
class Hint:
    """A wake-up. `channel` None means every table, `payload` "" every group of the table."""

    channel: str | None = None
    payload: str = ""


class Connection(Protocol):
    """One connection while it is lent. `driver` is the driver's own object."""

    @property
    def driver(self) -> Any: ...

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        """Run the calls in one transaction and, where the driver can, one round trip; the rows of each call.

        On a pool's connection the transaction is committed, at READ COMMITTED or the database's nearest; with
        `durable` False the commit need not have reached the disk. On an adopted connection the calls join
        the caller's transaction, which stays open, and the driver's errors pass unchanged.
        """
        ...

    def insert_many(
        self,
        insert: Statement,
        table: TableSpec,
        columns: Sequence[ColumnSpec],
        rows: Iterable[Row],
        *,
        then: Sequence[Call] = (),
    ) -> int:
        """Insert all rows (values in the order of `columns`) or none, the fastest way; how many.

        Where there were any, the calls of `then` follow in the same transaction.
        """
        ...

    def close(self) -> None:
        """Close it for good, and with it its transaction and its session's locks; the pool replaces it."""
        ...

    @property
    def closed(self) -> bool:
        """Whether it is lost, or closed."""
        ...


class AfterCommit(SQLQueueError):  # noqa: N818 - named by what happened
    """What a step committed is committed, and a step behind it failed: with the error that is this one's cause.

    `results`: the rows of each call, none for those that did not run.
    """

    def __init__(self, results: Sequence[Sequence[Row]]) -> None:
        super().__init__("a step failed behind a commit")
        self.results = results


#: What a handler did to its delivery's connection and must not do, or what happened to the connection, as text.
ENDED = (
    "it committed or rolled back its delivery's transaction itself (as `with connection:` does), which is for its "
    "outcome to do"
)
CLOSED = "it closed its delivery's connection"
LOST = "its delivery's connection was lost"
IN_USE = "a thread still uses its delivery's connection after it returned"


@attrs.frozen
class TakenBack:
    """How a connection came back from a handler. `problem`: what the handler did and must not do, such as ending the
    transaction, as text. `last`: whether no other delivery may use the connection."""

    problem: str | None = None
    last: bool = False


class Session(Connection, Protocol):
    """A connection whose transaction, and whose locks, last from one use to the next: what a delivery may hold.

    Lent by pools of databases with row locks or session locks.
    """

    def send(self, steps: Sequence[Step]) -> list[list[Row]]:
        """Take the steps in their order, in one round trip where the driver can; the rows of each call.

        After an error nothing of what follows the failed step was done, and `roll_back` is needed. Raises `AfterCommit`
        where something had been committed before it; `TransactionError`, which says `ENDED`, where a handler's
        savepoint is not there any more.
        """
        ...

    def roll_back(self) -> None:
        """End the open transaction, if any, and undo it. A connection that cannot is closed."""
        ...

    def lend(self, begin: Begin | None) -> Any:
        """The driver's connection for a handler, behind a savepoint of the transaction that `begin` opens or, where it
        is None, that is open. Our limit on a statement's time does not hold for the handler's."""
        ...

    def take_back(self) -> TakenBack:
        """The handler is done with it. As far as the driver allows, what the handler still does with the driver's
        connection raises."""
        ...


class KeyLocks(Protocol):
    """Locks on keys for one process and all others that use the same database, where sessions have none."""

    def open(self) -> None:
        """Make ready; raises where that cannot be, or where another process must be kept out."""
        ...

    def try_lock(self, key: str) -> bool:
        """Take the lock without waiting; False where anybody holds it."""
        ...

    def unlock(self, key: str) -> bool:
        """Let the lock go; False where it was not held."""
        ...

    def close(self) -> None:
        """Let all of them go."""
        ...


class Pool(Protocol):
    """The connections of one broker in one process. Nothing connects before the first `connection()`."""

    @property
    def size(self) -> int: ...

    def probe(self) -> None:
        """Make one connection now and let the driver's own error out where that fails; a pool may hide it."""
        ...

    def connection(self, timeout: float | None = None) -> AbstractContextManager[Connection]:
        """Lend a connection, as it came when it goes back. Waits `timeout` seconds, by default the pool's own."""
        ...

    @property
    def key_locks(self) -> KeyLocks | None:
        """Locks on keys, where the database's sessions have none; one object for all who use the pool."""
        ...

    def direct(self) -> AbstractContextManager[Connection]:
        """A connection beside the pool's, closed afterwards: for what must not wait until the pool can lend one."""
        ...

    def close(self) -> None:
        """Close what this object opened; a pool of the user's stays open."""
        ...


class Waker(Protocol):
    """Calls back when another program wrote. Its thread survives every failure of the database."""

    @property
    def certain(self) -> bool:
        """Whether it sees every commit at present: an empty queue then needs no polling."""
        ...

    @property
    def borrows(self) -> bool:
        """Whether it takes one of the pool's connections for good."""
        ...

    def start(self) -> None: ...

    def stop(self) -> None:
        """End the thread and give back or close its connection; returns when both are done."""
        ...
