"""A process that is killed in a handler: its rows are run by others, and a row that kills its process is parked."""

import signal
from time import monotonic

from sqlqueue import Broker
from tests.consumer.helpers import jobs, wait_until
from tests.support.children import child
from tests.support.database import Database

WORKER = "tests.crash.programs.worker"

LEASE, POLL = 1.0, 0.2
NOISE = 0.5  # seconds for a claim, a line through a pipe and a machine that does other things besides


def prepare(database: Database, *numbers: int) -> None:
    with Broker(database.url) as broker:
        jobs(broker).enqueue_many(numbers)


def test_a_row_of_a_killed_process_is_run_by_another_within_lease_and_poll(database: Database) -> None:
    """PAINS 1"""
    prepare(database, 1)
    with child(WORKER, database.url, act="wait", lease=LEASE, poll=POLL) as first:
        assert first.wait_for("started") == ["started 1 1"]
        with child(WORKER, database.url, lease=LEASE, poll=POLL) as second:
            second.wait_for("looked")
            first.wait_for("extended")  # the first is alive and keeps its row
            first.signal(signal.SIGKILL)
            killed = monotonic()
            assert second.wait_for("started") == ["started 1 2"]
            assert monotonic() - killed < LEASE + POLL + NOISE
            second.wait_for("acknowledged")
        assert first.exit_code() == -signal.SIGKILL
    assert database.execute("SELECT id FROM jobs") == []


def test_a_row_whose_handler_kills_its_process_is_parked_after_its_last_attempt(database: Database) -> None:
    """PAINS 4: a later worker parks it at its claim, though no handler of it ever returned; the next row runs."""
    prepare(database, 1)
    for attempt in (1, 2):
        with child(WORKER, database.url, act="die", lease=0.3, max_attempts=2) as victim:
            assert victim.exit_code() == -signal.SIGKILL
            assert victim.said("started") == [f"started 1 {attempt}"]
    prepare(database, 2)
    with child(WORKER, database.url, max_attempts=2) as survivor:
        survivor.wait_for("parked 1")
        wait_until(lambda: database.execute("SELECT count(*) FROM jobs") == [(1,)])
        survivor.stop()
        assert survivor.said("started") == ["started 2 1"]
    [(id, error, lease)] = database.execute("SELECT id, error, locked_until FROM jobs")
    assert (id, lease) == (1, None)
    assert error == "the worker was lost in the last of 2 attempts"
