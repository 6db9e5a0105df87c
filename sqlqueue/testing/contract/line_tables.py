"""Tables with FIFO lines, for the suite; and an instance that works them off, by whatever holds its rows."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any

import attrs

from sqlqueue import column
from sqlqueue.clock import Clock, HostClock
from sqlqueue.column import Role
from sqlqueue.dialect import Connection
from sqlqueue.queue import Queue
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.strategies.base import ACKNOWLEDGE, Ahead, Claim, Settlement
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.row_lock import RowLock
from sqlqueue.table import table
from sqlqueue.words import Words


@table("line_jobs")
class LineJob:
    """A line for each account; rows without one stand in none."""

    id: int = column.id(generated=True)
    account: str | None = column.partition_key(fifo=True)
    due_at: datetime | None = column.retry_after()
    attempt: int = column.attempt()
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()
    error: str | None = column.error()


@table("plain_line_jobs")
class PlainLineJob:
    """The least that is served: a retried row is hidden by its lease."""

    id: int = column.id(generated=True)
    account: str = column.partition_key(fifo=True)
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()


@table("ranked_line_jobs")
class RankedLineJob:
    """A line is ordered by priority, then by id."""

    id: int = column.id(generated=True)
    account: str | None = column.partition_key(fifo=True)
    priority: int = column.priority()
    due_at: datetime | None = column.retry_after()
    attempt: int = column.attempt()
    done_at: datetime | None = column.processed_at()
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()


@table("line_group_jobs")
class LineGroupJob:
    """Each group is a line."""

    id: int = column.id(generated=True)
    queue_name: str = column.group(fifo=True)
    due_at: datetime | None = column.retry_after()
    attempt: int = column.attempt()
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()


@table("grouped_line_jobs")
class GroupedLineJob:
    """The lines of a group are those of its queue."""

    id: int = column.id(generated=True)
    queue_name: str = column.group()
    account: str | None = column.partition_key(fifo=True)
    due_at: datetime | None = column.retry_after()
    attempt: int = column.attempt()
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()


LINE_TABLES = (LineJob, PlainLineJob, RankedLineJob, LineGroupJob, GroupedLineJob)


def by_row_lock(declared: "type | TableSpec") -> TableSpec:
    """The declaration without its lease; its rows are mappings."""
    spec = spec_of(declared)
    return attrs.evolve(
        spec, columns=[one for one in spec.columns if one.role is not Role.LEASE], row_class=None
    )


def with_key_of(declared: "type | TableSpec", kind: type) -> TableSpec:
    """The declaration with keys of another type."""
    spec = spec_of(declared)
    columns = [attrs.evolve(one, type=kind) if one.role is Role.PARTITION_KEY else one for one in spec.columns]
    return attrs.evolve(spec, columns=columns, row_class=None)


class Instance:
    """An instance of a service that claims a row at a time: by the lease where the table has one, else by row lock.

    `wrap` puts something in between on each of its connections.
    """

    def __init__(self, queue: Queue, *, wrap: Callable[[Connection], Any] = lambda connection: connection) -> None:
        broker, spec = queue.broker, queue.spec
        self.clock: Clock = spec.clock if isinstance(spec.clock, Clock) else HostClock()
        self._pool, self._wrap = broker.pool, wrap
        self._held: dict[Claim, Connection] = {}
        self._kept: dict[Claim, ExitStack] = {}
        words = Words(broker.dialect, spec, grouped=queue.group is not None)
        columns = spec.columns
        self.strategy: Any
        if spec.has(Role.LEASE):
            self.strategy = Lease(words, columns=columns, seconds=30, most=16, group=queue.group)
        else:
            self.strategy = RowLock(words, columns=columns, most=16, group=queue.group)
        self.by_lease = spec.has(Role.LEASE)

    def claim(self) -> Claim | None:
        """The next row, held until it is settled; None where there is none."""
        with ExitStack() as kept:
            connection = self._wrap(kept.enter_context(self._pool.connection()))
            claims = self.strategy.turn(connection, [], 1, self.clock.now()).claims
            if not claims:
                return None
            (claim,) = claims
            if not self.by_lease:
                self._held[claim], self._kept[claim] = connection, kept.pop_all()
            return claim

    def claim_all(self) -> list[Claim]:
        """Rows, until there are no more."""
        return list(iter(self.claim, None))

    def settle(self, claim: Claim, settlement: Settlement = ACKNOWLEDGE) -> None:
        """End the delivery; the row was held until now, or this fails."""
        with self._kept.pop(claim, None) or ExitStack() as kept:
            connection = self._held.pop(claim, None) or kept.enter_context(self._pool.connection())
            turned = self.strategy.turn(connection, [(claim, settlement)], 0, self.clock.now())
            assert (list(turned.lost), list(turned.gone)) == ([], [])

    def look_ahead(self) -> Ahead:
        with self._pool.connection() as connection:
            return self.strategy.look_ahead(connection, self.clock.now(), held=len(self._held))

    def close(self) -> None:
        """Let all rows go that a connection holds."""
        for claim, kept in self._kept.items():
            with kept:
                self.strategy.let_go(self._held[claim], claim)
        self._kept.clear()
        self._held.clear()


OpenInstance = Callable[..., Instance]


@contextmanager
def instances() -> Iterator[OpenInstance]:
    """Makes instances, which let their rows go at the end."""
    with ExitStack() as stack:

        def open_instance(queue: Queue, **settings: Any) -> Instance:
            instance = Instance(queue, **settings)
            stack.callback(instance.close)
            return instance

        yield open_instance
