"""What fails on a worker's thread beside the handler ends the run, and is told."""

import threading
from datetime import datetime, timezone

import pytest

from sqlqueue import Broker, Consumer, Retry, column, table
from tests.support.database import Database


class BrokenOnWorkers:
    """A clock of the user's that workers cannot read."""

    def now(self) -> datetime:
        if threading.current_thread().name.startswith("sqlqueue-worker"):
            raise RuntimeError("the clock is broken")
        return datetime.now(timezone.utc)


@table("timed_jobs", clock=BrokenOnWorkers())
class TimedJob:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()


def test_a_clock_that_fails_on_a_worker_ends_the_run_with_its_error_and_gives_the_row_back(database: Database) -> None:
    with Broker(database.url) as broker:
        jobs = broker.queue(TimedJob)
        broker.create_tables()

        @jobs.handler
        def handle(message: object) -> Retry:
            return Retry(1)

        jobs.enqueue({})
        with pytest.raises(RuntimeError, match="the clock is broken"):
            Consumer(broker, drain_timeout=0.1).run_until_idle(timeout=10)
    assert database.execute("SELECT count(*) FROM timed_jobs WHERE locked_until IS NULL") == [(1,)]
