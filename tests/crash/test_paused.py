"""Processes that stand still past their lease, and handlers that take longer than it."""

import signal
from itertools import pairwise

import pytest

from sqlqueue import Broker
from tests.consumer.helpers import jobs, wait_until
from tests.support.children import child
from tests.support.database import Database

WORKER = "tests.crash.programs.worker"

LEASE = 1.0
ROWS = "SELECT attempt, retry_after, error FROM jobs ORDER BY id"


def prepare(database: Database, count: int = 1) -> None:
    with Broker(database.url) as broker:
        jobs(broker).enqueue_many(range(count))


def test_what_a_paused_process_settles_past_its_lease_changes_nothing(database: Database) -> None:
    """PAINS 2: its ack, retry and failure come while another has the rows in work, which fare as the other says."""
    prepare(database, 3)
    with child(WORKER, database.url, act="wait", workers=3, lease=LEASE) as paused:
        paused.wait_for("started", 3)
        paused.signal(signal.SIGSTOP)
        with child(WORKER, database.url, act="wait", workers=3, lease=LEASE) as other:
            assert sorted(other.wait_for("started", 3)) == [f"started {id} 2" for id in (1, 2, 3)]
            for outcome in ("end", "retry", "fail"):
                paused.tell(outcome)
            paused.signal(signal.SIGCONT)
            paused.wait_for("lease_lost", 3)
            assert database.execute(ROWS) == [(2, None, None)] * 3
            for _ in range(3):
                other.tell("end")
            other.wait_for("acknowledged", 3)
            assert database.execute(ROWS) == []
        paused.stop()
        assert len([line for line in paused.said("log") if "LeaseLost" in line]) == 3
        assert [*paused.said("acknowledged"), *paused.said("retried"), *paused.said("trouble")] == []
        assert len(paused.said("started")) == 3


def test_the_outcome_of_whoever_took_the_row_stays_when_the_paused_process_acknowledges(database: Database) -> None:
    """PAINS 2: the other asked for a retry, and the row waits for it."""
    prepare(database)
    with child(WORKER, database.url, act="wait", lease=LEASE) as paused:
        paused.wait_for("started 1 1")
        paused.signal(signal.SIGSTOP)
        with child(WORKER, database.url, act="wait", lease=LEASE) as other:
            other.wait_for("started 1 2")
            other.tell("retry")
            other.wait_for("retried 1")
        [row] = database.execute(ROWS)
        paused.tell("end")
        paused.signal(signal.SIGCONT)
        paused.wait_for("lease_lost 1")
        assert database.execute(ROWS) == [row]
        attempt, retry_after, error = row
        assert (attempt, error) == (2, None)
        assert retry_after is not None


@pytest.mark.sample("postgres")
def test_a_handler_five_leases_long_beside_busy_threads_runs_once(database: Database) -> None:
    """PAINS 3: its lease is extended each half of it, while another consumer looks for rows to take."""
    prepare(database)
    with child(WORKER, database.url, act="last", seconds=5 * LEASE, lease=LEASE) as busy:
        busy.wait_for("started 1 1")
        with child(WORKER, database.url, lease=LEASE) as other:
            other.wait_for("looked")
            busy.wait_for("acknowledged 1")
            wait_until(lambda: database.execute(ROWS) == [])
            other.stop()
            assert other.said("started") == []
        assert len(busy.said("started")) == 1
        moments = [float(line.split()[2]) for line in busy.said("extended")]
        gaps = [later - earlier for earlier, later in pairwise(moments)]
        assert len(gaps) >= 7
        assert max(gaps) < 0.75 * LEASE  # half a lease, and a quarter for a machine whose every core is busy
