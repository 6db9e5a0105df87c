"""Tables with FIFO lines, for the suite."""

from datetime import datetime

import attrs

from sqlqueue import column
from sqlqueue.roles import Role
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.table import table


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
    return attrs.evolve(spec, columns=[one for one in spec.columns if one.role is not Role.LEASE], row_class=None)


def with_key_of(declared: "type | TableSpec", kind: type) -> TableSpec:
    """The declaration with keys of another type."""
    spec = spec_of(declared)
    columns = [attrs.evolve(one, type=kind) if one.role is Role.PARTITION_KEY else one for one in spec.columns]
    return attrs.evolve(spec, columns=columns, row_class=None)
