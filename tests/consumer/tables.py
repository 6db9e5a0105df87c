"""The table `jobs` by each claim strategy."""

from datetime import datetime

from sqlqueue import Broker, Queue, column, table
from tests.consumer.helpers import Job


@table("jobs")
class RowLockJob:
    id: int = column.id(generated=True)
    retry_after: datetime | None = column.retry_after()
    attempt: int = column.attempt()
    payload: bytes = column.payload()
    error: str | None = column.error()


@table("jobs", advisory_lock="jobs-{id}")
class AdvisoryJob:
    id: int = column.id(generated=True)
    retry_after: datetime | None = column.retry_after()
    attempt: int = column.attempt()
    payload: bytes = column.payload()
    error: str | None = column.error()


@table("jobs", advisory_lock="one at a time")
class SingleJob:
    """All rows share one key."""

    id: int = column.id(generated=True)
    retry_after: datetime | None = column.retry_after()
    attempt: int = column.attempt()
    payload: bytes = column.payload()
    error: str | None = column.error()


TABLES: dict[str, type] = {"lease": Job, "row": RowLockJob, "advisory": AdvisoryJob, "single": SingleJob}


def jobs_by(strategy: str, broker: Broker) -> Queue:
    """The broker's queue on `jobs`, its table made."""
    queue = broker.queue(TABLES[strategy])
    broker.create_tables()
    return queue
