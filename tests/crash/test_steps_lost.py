"""Steps whose workers die or stand still: `is_running` tells the truth, and what comes too late changes nothing."""

import signal
from datetime import datetime, timezone

import pytest

from tests.consumer.helpers import wait_until
from tests.crash.holding import WRITTEN, Stored, any_running, prepare, stored
from tests.support.children import Child, child
from tests.support.database import Database

HOLDER = "tests.crash.programs.step_holder"

LEASE, POLL = 1.0, 0.05
#: One that a consumer which is ready to begin has begun well within.
LONG_LEASE = 1.5
NOISE = 0.5  # seconds for a claim, a line through a pipe and a machine that does other things besides


def the_row(database: Database) -> Stored:
    [row] = stored(database)
    return row


def lease_of(row: Stored) -> float:
    """When its lease ends, in seconds since the epoch."""
    assert row.locked_until is not None
    return row.locked_until.timestamp()


def kill(worker: Child) -> None:
    worker.signal(signal.SIGKILL)
    assert worker.exit_code() == -signal.SIGKILL


def test_a_running_step_says_so_and_a_consumer_that_starts_meanwhile_leaves_it(database: Database) -> None:
    """Beyond the lease that its claim wrote, which its worker extends."""
    prepare(database)
    with child(HOLDER, database.url, beside=True, lease=LEASE) as worker:
        worker.wait_for("started 1 1")
        claimed = the_row(database)
        assert (claimed.tried, claimed.running, claimed.error) == (1, True, None)
        assert lease_of(claimed) > datetime.now(timezone.utc).timestamp()
        with child(HOLDER, database.url, beside=True, lease=LEASE) as other:
            other.wait_for("looked")
            wait_until(lambda: datetime.now(timezone.utc).timestamp() > lease_of(claimed))
            other.wait_for("looked", 2)
            kept = the_row(database)
            assert (kept.tried, kept.running, kept.error) == (1, True, None)
            assert lease_of(kept) > lease_of(claimed)
            assert any_running(database)
            worker.tell("done")
            worker.wait_for("acknowledged")
            assert (stored(database), any_running(database)) == ([], False)
            other.stop()
            assert other.said("started") == []
        worker.stop()
        assert worker.said("lease_lost") == []


def test_a_killed_workers_step_runs_on_in_its_row_until_its_lease_ends_whoever_starts(database: Database) -> None:
    """PAINS 1: then it is taken over, and the crash counts as a try."""
    prepare(database)
    with (
        child(HOLDER, database.url, lease=LONG_LEASE) as victim,
        child(HOLDER, database.url, lease=LONG_LEASE, poll=POLL, waits=True) as heir,
    ):
        victim.wait_for("started 1 1")
        heir.wait_for("ready")
        kill(victim)
        left = the_row(database)
        assert (left.tried, left.running, left.error) == (1, True, None)
        heir.tell("begin")
        heir.wait_for("looked")  # before it starts the step
        [started] = heir.wait_for("started 1 2")
        late = float(started.split()[3]) - lease_of(left)
        assert -0.001 <= late < POLL + NOISE
        taken = the_row(database)
        assert (taken.tried, taken.running) == (2, True)
        heir.tell("on")
        heir.wait_for("started 2 1")
        heir.tell("done")
        heir.wait_for("acknowledged")
        assert (stored(database), any_running(database)) == ([], False)
        heir.stop()


def test_a_step_without_retries_whose_worker_is_killed_is_parked_with_an_error_that_says_so(
    database: Database,
) -> None:
    """PAINS 4: and nothing runs any more."""
    prepare(database, writing=True)
    with child(HOLDER, database.url, writing=True, lease=LEASE, retry_limit=0) as victim:
        victim.wait_for("started 1 1")
        kill(victim)
    with child(HOLDER, database.url, writing=True, lease=LEASE, retry_limit=0) as heir:
        heir.wait_for("parked")
        row = the_row(database)
        assert (row.number, row.tried, row.running, row.locked_until) == (1, 1, False, None)
        assert row.error == "the worker was lost in the last of 1 attempts"
        assert not any_running(database)
        heir.stop()
        assert heir.said("started") == []
    assert database.execute(WRITTEN) == []


def check_paused(database: Database, **options: bool) -> None:
    """One worker stands still past its lease, another has taken the task a step further when it wakes."""
    with child(HOLDER, database.url, lease=LEASE, **options) as paused:
        paused.wait_for("started 1 1")
        paused.signal(signal.SIGSTOP)
        with child(HOLDER, database.url, lease=LEASE, **options) as other:
            other.wait_for("started 1 2")
            other.tell("on")
            other.wait_for("started 2 1")
            paused.tell("done")
            paused.signal(signal.SIGCONT)
            paused.wait_for("lease_lost")
            row = the_row(database)
            assert (row.number, row.tried, row.running, row.error) == (2, 1, True, None)
            wait_until(lambda: lease_of(the_row(database)) > lease_of(row))  # the other's still, and extended
            other.tell("done")
            other.wait_for("acknowledged")
            assert stored(database) == []
            other.stop()
        paused.stop()
        assert [*paused.said("acknowledged"), *paused.said("trouble"), *other.said("lease_lost")] == []
        assert len(paused.said("lease_lost")) == 1


@pytest.mark.parametrize("beside", [False, True], ids=["dispatcher", "connection workers"])
def test_what_a_worker_that_stood_still_past_its_lease_returns_changes_nothing(
    database: Database, beside: bool
) -> None:
    """PAINS 2"""
    prepare(database)
    check_paused(database, beside=beside)


def test_what_a_transactional_step_wrote_whose_worker_stood_still_past_its_lease_is_undone(
    postgres_database: Database,
) -> None:
    """PAINS 2: the effects are those of the worker that took the task over."""
    prepare(postgres_database, writing=True)
    check_paused(postgres_database, writing=True)
    assert postgres_database.execute(WRITTEN) == [(1,), (2,)]


def test_the_one_writer_that_stands_still_past_its_lease_keeps_its_task(sqlite_database: Database) -> None:
    """Nobody can claim while a transactional step has the file's write lock: it is not lost, and counts once."""
    database = sqlite_database
    prepare(database, writing=True)
    with child(HOLDER, database.url, writing=True, lease=LEASE) as paused:
        paused.wait_for("started 1 1")
        paused.signal(signal.SIGSTOP)
        with child(HOLDER, database.url, writing=True, lease=LEASE) as other:
            wait_until(lambda: datetime.now(timezone.utc).timestamp() > lease_of(the_row(database)) + LEASE)
            row = the_row(database)
            assert (row.number, row.tried, row.running) == (1, 1, True)
            paused.tell("done")
            paused.signal(signal.SIGCONT)
            paused.wait_for("acknowledged")
            other.wait_for("looked")
            other.stop()
            assert other.said("started") == []
        paused.stop()
        assert paused.said("lease_lost") == []
    assert (database.execute(WRITTEN), stored(database)) == ([(1,)], [])
