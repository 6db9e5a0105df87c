"""The tables of the suite: rows are written by us and, in plain SQL, by other programs."""

import itertools
from datetime import datetime
from typing import Any

import attrs

from sqlqueue import column
from sqlqueue.clock import UTC
from sqlqueue.table import table


@table("jobs")
class Job:
    """The least that is served: acknowledged rows are deleted, a retried one is hidden by its lease."""

    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()


@table("counted_jobs")
class CountedJob:
    """Counts attempts, hides rows until they are due, and has no place to park one."""

    id: int = column.id(generated=True)
    due_at: datetime | None = column.retry_after()
    attempt: int = column.attempt()
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()


@table("kept_jobs")
class KeptJob:
    """Keeps what is done, and parks what failed."""

    id: int = column.id(generated=True)
    due_at: datetime | None = column.retry_after()
    attempt: int | None = column.attempt()
    done_at: datetime | None = column.processed_at()
    locked_until: datetime | None = column.lease()
    headers: dict[str, str] | None = column.headers()
    payload: str | None = column.payload()
    error: str | None = column.error()


@table("ranked_jobs")
class RankedJob:
    """A claim order of all three: priority, due time, id."""

    id: int = column.id(generated=True)
    priority: int = column.priority()
    due_at: datetime | None = column.retry_after()
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()


@table("keyed_jobs")
class KeyedJob:
    """Rows that may keep their order by a key."""

    id: int = column.id(generated=True)
    account: str | None = column.partition_key()
    due_at: datetime | None = column.retry_after()
    attempt: int = column.attempt()
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()


@table("raw_jobs")
class RawJob:
    """Bytes, as they are."""

    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    headers: dict[str, str] | None = column.headers()
    payload: bytes | None = column.payload()
    error: str | None = column.error()


@table("orders")
class Order:
    """Row mode: the handler takes the row itself."""

    id: int = column.id(generated=True)
    attempt: int = column.attempt()
    locked_until: datetime | None = column.lease()
    placed_at: datetime
    number: str
    note: str | None = None
    error: str | None = column.error()


@table("orders")
class LockedOrder:
    """The same, held by a lock."""

    id: int = column.id(generated=True)
    attempt: int = column.attempt()
    placed_at: datetime
    number: str
    note: str | None = None
    error: str | None = column.error()


@table("orders", advisory_lock="orders-{number}")
class KeyLockedOrder:
    """The same, where a lock on a column of the row's own holds it."""

    id: int = column.id(generated=True)
    attempt: int = column.attempt()
    placed_at: datetime
    number: str
    note: str | None = None
    error: str | None = column.error()


@table("full_jobs")
class FullJob:
    """Every role that the lease serves."""

    id: int = column.id(generated=True)
    queue_name: str = column.group()
    priority: int = column.priority()
    account: str | None = column.partition_key()
    due_at: datetime | None = column.retry_after()
    attempt: int = column.attempt()
    done_at: datetime | None = column.processed_at()
    locked_until: datetime | None = column.lease()
    headers: dict[str, str] | None = column.headers()
    payload: str = column.payload()
    error: str | None = column.error()
    is_running: bool = column.running()


@table("named_jobs")
class NamedJob:
    """Names its rows itself, so that two can be one."""

    id: str = column.id()
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()


@table("noted_orders")
class NotedOrder:
    """Row mode with headers, which another program reads as text."""

    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    notes: str | None = column.headers()
    number: str


@table("dead_jobs")
class DeadJob:
    """Where rows go that nobody could handle: other names for the same roles, and columns of its own."""

    number: int = column.id(generated=True)
    again_at: datetime = column.retry_after()
    tries: int = column.attempt()
    held_until: datetime | None = column.lease()
    notes: dict[str, str] | None = column.headers()
    body: str = column.payload()
    account: str | None = None
    state: str = "new"
    remark: str | None = None


@table("kept_dead_jobs")
class KeptDeadJob:
    """The same under the ids that the rows had, and without headers."""

    id: int = column.id()
    locked_until: datetime | None = column.lease()
    payload: str | None = column.payload()


TOKENS = itertools.count(1)

LONG_AGO = datetime(1999, 12, 31, 23, 59, 59, tzinfo=UTC)


@table("token_dead_jobs")
class TokenDeadJob:
    """Gives each row that comes a token of its own."""

    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()
    token: str = attrs.field(factory=lambda: f"T-{next(TOKENS)}")


@table("noted_jobs")
class NotedJob:
    """Values that may be missing, of most kinds."""

    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: str | None = column.payload()
    note: str | None = None
    number: int | None = None
    noted_at: datetime | None = None
    more: dict[str, Any] | None = None
    token: str | None = None


@table("noted_dead_jobs")
class NotedDeadJob:
    """The same, none of which may be missing."""

    id: int = column.id(generated=True)
    payload: str | None = column.payload()
    note: str = "none"
    number: int = -1
    noted_at: datetime = LONG_AGO
    more: dict[str, Any] = attrs.field(factory=lambda: {"nothing": True})
    token: str = attrs.field(factory=lambda: f"T-{next(TOKENS)}")


@table("dead_orders")
class DeadOrder:
    """Row mode: what an order held, by name."""

    id: int = column.id(generated=True)
    number: str
    locked_until: datetime | None = column.lease()
    placed_at: datetime
    note: str | None
