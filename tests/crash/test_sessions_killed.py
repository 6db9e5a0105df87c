"""Row lock and advisory lock: a process that is killed or stands still, and a session that ends under a handler."""

import signal
from time import monotonic

import pytest

from sqlqueue import Broker
from tests.consumer.helpers import wait_until
from tests.consumer.postgres_helpers import terminate
from tests.consumer.tables import jobs_by
from tests.support.children import child
from tests.support.database import Database
from tests.support.strategies import SEATED, by_strategy

WORKER = "tests.crash.programs.worker"

POLL = 0.2
NOISE = 0.5  # seconds for a line through a pipe, a session's end and a machine that does other things besides

ROWS = "SELECT attempt, retry_after, error FROM jobs ORDER BY id"

# The sessions of deliveries in work.
HOLDERS = """
SELECT DISTINCT pid FROM pg_stat_activity AS session
WHERE application_name = ?
AND (state = 'idle in transaction'
     OR EXISTS (SELECT 1 FROM pg_locks WHERE pg_locks.pid = session.pid AND locktype = 'advisory'))
"""


def prepare(database: Database, strategy: str, *numbers: int) -> None:
    with Broker(database.url) as broker:
        jobs_by(strategy, broker).enqueue_many(numbers)


def attempt_after(strategy: str, lost: int) -> int:
    """What the next delivery counts: under a row lock nothing stays of those that were lost."""
    return lost + 1 if strategy == "advisory" else 1


@by_strategy(*SEATED)
def test_a_row_of_a_killed_process_is_run_by_another_at_its_next_poll(database: Database, strategy: str) -> None:
    """PAINS 1: what held the row ends with the process."""
    prepare(database, strategy, 1)
    with child(WORKER, database.url, act="wait", strategy=strategy) as first:
        assert first.wait_for("started") == ["started 1 1"]
        with child(WORKER, database.url, strategy=strategy, poll=POLL) as second:
            second.wait_for("looked", 3)
            first.signal(signal.SIGKILL)
            killed = monotonic()
            assert second.wait_for("started") == [f"started 1 {attempt_after(strategy, 1)}"]
            assert monotonic() - killed < POLL + NOISE
            second.wait_for("acknowledged")
        assert first.exit_code() == -signal.SIGKILL
    assert database.execute(ROWS) == []


@by_strategy("advisory")
def test_a_row_whose_handler_kills_its_process_is_parked_after_its_last_attempt(
    database: Database, strategy: str
) -> None:
    """PAINS 4"""
    prepare(database, strategy, 1)
    for attempt in (1, 2):
        with child(WORKER, database.url, act="die", strategy=strategy, max_attempts=2) as victim:
            assert victim.exit_code() == -signal.SIGKILL
            assert victim.said("started") == [f"started 1 {attempt}"]
    prepare(database, strategy, 2)
    with child(WORKER, database.url, strategy=strategy, max_attempts=2) as survivor:
        survivor.wait_for("parked 1")
        wait_until(lambda: database.execute("SELECT id FROM jobs") == [(1,)])
        survivor.stop()
        assert survivor.said("started") == ["started 2 1"]
    [(_, _, error)] = database.execute(ROWS)
    assert error == "the worker was lost in the last of 2 attempts"


@by_strategy("row")
def test_under_a_row_lock_a_lost_worker_counts_no_attempt(database: Database, strategy: str) -> None:
    """PAINS 4: its count is rolled back with all the rest; the price is in the docs."""
    prepare(database, strategy, 1)
    for _ in range(3):
        with child(WORKER, database.url, act="die", strategy=strategy, max_attempts=2) as victim:
            assert victim.exit_code() == -signal.SIGKILL
            assert victim.said("started") == ["started 1 1"]
    assert database.execute(ROWS) == [(0, None, None)]


@by_strategy(*SEATED)
def test_nobody_takes_the_row_of_a_process_that_stands_still(database: Database, strategy: str) -> None:
    """PAINS 2: its session lasts, for as long as it takes, and what it settles then takes effect."""
    prepare(database, strategy, 1)
    with child(WORKER, database.url, act="wait", strategy=strategy) as paused:
        paused.wait_for("started 1 1")
        paused.signal(signal.SIGSTOP)
        with child(WORKER, database.url, strategy=strategy) as other:
            other.wait_for("looked", 5)
            paused.tell("end")
            paused.signal(signal.SIGCONT)
            paused.wait_for("acknowledged 1")
            wait_until(lambda: database.execute(ROWS) == [])
            other.stop()
            assert other.said("started") == []


@pytest.mark.parametrize("strategy", SEATED)
def test_what_a_process_settles_after_its_sessions_ended_changes_nothing(
    postgres_database: Database, strategy: str
) -> None:
    """PAINS 2 25: its ack, retry and failure are told as lost, while another has the rows in work."""
    database, again = postgres_database, attempt_after(strategy, 1)
    prepare(database, strategy, 1, 2, 3)
    with child(WORKER, database.url, act="wait", workers=3, strategy=strategy) as paused:
        paused.wait_for("started", 3)
        paused.signal(signal.SIGSTOP)
        for (pid,) in database.execute(HOLDERS, database.name):
            terminate(database, pid)
        with child(WORKER, database.url, act="wait", workers=3, strategy=strategy) as other:
            assert sorted(other.wait_for("started", 3)) == [f"started {id} {again}" for id in (1, 2, 3)]
            for outcome in ("end", "retry", "fail"):
                paused.tell(outcome)
            paused.signal(signal.SIGCONT)
            paused.wait_for("lease_lost", 3)
            counted = 2 if strategy == "advisory" else 0  # a row lock's settlement counts
            assert database.execute(ROWS) == [(counted, None, None)] * 3
            for _ in range(3):
                other.tell("end")
            other.wait_for("acknowledged", 3)
        paused.wait_for("looked")  # it has a connection again
        paused.stop()
        assert len([line for line in paused.said("log") if "LeaseLost" in line]) == 3
        assert [*paused.said("acknowledged"), *paused.said("retried")] == []
        assert len(paused.said("started")) == 3
    assert database.execute(ROWS) == []
