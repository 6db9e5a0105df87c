"""Workers that are told to stop in a step, and steps whose time comes when their worker is no more."""

import signal
from datetime import datetime, timezone

import pytest

from tests.consumer.helpers import HOUR, wait_until
from tests.consumer.postgres_helpers import listeners
from tests.crash.holding import WRITTEN, Stored, any_running, prepare, stored
from tests.support.children import child
from tests.support.database import Database

HOLDER = "tests.crash.programs.step_holder"

STOP_WORKERS = "SELECT pg_notify('pg_task_changed', 'stop_worker')"
DELAY = 1.5  # seconds, in which a consumer that is ready to begin has begun
NOISE = 0.5  # seconds for a claim, a line through a pipe and a machine that does other things besides


def waits_at(number: int, row: Stored) -> None:
    """The task is at that step, due, and in nobody's hands."""
    assert (row.number, row.tried, row.running, row.error, row.locked_until) == (number, 0, False, None, None)
    assert row.wakeup_at <= datetime.now(timezone.utc)


@pytest.mark.parametrize("writing", [False, True], ids=["plain", "transactional"])
def test_at_sigterm_the_current_step_ends_and_the_next_one_waits(database: Database, writing: bool) -> None:
    prepare(database, tasks=2, writing=writing)
    with child(HOLDER, database.url, writing=writing) as worker:
        worker.wait_for("started 1 1")
        worker.signal(signal.SIGTERM)
        worker.wait_for("stopping")
        worker.tell("on")
        assert worker.exit_code() == 0
        assert len(worker.said("started")) == len(worker.said("advanced")) == 1
    one, other = sorted(stored(database), key=lambda row: row.number)
    waits_at(2, other)
    waits_at(1, one)  # it was never begun
    assert not any_running(database)
    assert database.execute(WRITTEN) == ([(1,)] if writing else [])


@pytest.mark.parametrize("writing", [False, True], ids=["plain", "transactional"])
def test_a_notification_stops_all_workers_after_their_current_steps(postgres_database: Database, writing: bool) -> None:
    """It is sent by another session, as pg_task documents it."""
    database = postgres_database
    prepare(database, tasks=2, writing=writing)
    with child(HOLDER, database.url, writing=writing) as one, child(HOLDER, database.url, writing=writing) as other:
        for worker in (one, other):
            worker.wait_for("started 1 1")
        wait_until(lambda: len(listeners(database)) == 2)  # steps may begin before
        database.execute(STOP_WORKERS)
        for worker in (one, other):
            worker.wait_for("stopping")
            worker.tell("on")
        for worker in (one, other):
            assert worker.exit_code() == 0
            assert len(worker.said("started")) == len(worker.said("advanced")) == 1
    rows = stored(database)
    assert len(rows) == 2
    for row in rows:
        waits_at(2, row)
    assert not any_running(database)
    assert database.execute(WRITTEN) == ([(1,), (1,)] if writing else [])


def test_a_delayed_step_starts_when_it_is_due_though_its_worker_was_killed(database: Database) -> None:
    """Neither at once nor at the poll; the step before it ended at once, and nothing ran meanwhile."""
    prepare(database)
    with (
        child(HOLDER, database.url, poll=HOUR) as victim,
        child(HOLDER, database.url, poll=HOUR, waits=True) as heir,
    ):
        victim.wait_for("started 1 1")
        heir.wait_for("ready")
        returned = datetime.now(timezone.utc)
        victim.tell(f"delay {DELAY}")
        victim.wait_for("advanced")
        victim.signal(signal.SIGKILL)
        assert victim.exit_code() == -signal.SIGKILL
        [row] = stored(database)
        assert (row.number, row.tried, row.running, row.locked_until) == (2, 0, False, None)
        assert DELAY <= (row.wakeup_at - returned).total_seconds() < DELAY + NOISE
        heir.tell("begin")
        heir.wait_for("looked")  # before it starts the step
        [started] = heir.wait_for("started 2 1")
        late = float(started.split()[3]) - row.wakeup_at.timestamp()
        assert -0.001 <= late < NOISE
        heir.tell("done")
        heir.wait_for("acknowledged")
        heir.stop()
    assert stored(database) == []
