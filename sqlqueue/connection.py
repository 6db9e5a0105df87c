"""What a dialect lends: connections, the pool that they come from, and the waker."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import attrs

from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Call, Statement

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

    def direct(self) -> AbstractContextManager[Connection]:
        """A connection beside the pool's, closed afterwards: for what must not wait until the pool can lend one."""
        ...

    def close(self) -> None:
        """Close what this object opened; a pool of the user's stays open."""
        ...


class Waker(Protocol):
    """Calls back when another program wrote, on a thread of its own that no trouble ends."""

    @property
    def certain(self) -> bool:
        """Whether no commit escapes it at present: an empty queue then needs no looks."""
        ...

    @property
    def borrows(self) -> bool:
        """Whether it takes one of the pool's connections for good."""
        ...

    def start(self) -> None: ...

    def stop(self) -> None:
        """End the thread and give back or close its connection; returns when both are done."""
        ...
