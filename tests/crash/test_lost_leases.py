"""What a process still does with rows that it has lost, and what a row that changes hands keeps: its back-off."""

import signal
from datetime import datetime, timedelta, timezone
from time import monotonic

from sqlqueue import Broker
from tests.consumer.helpers import jobs
from tests.support.children import child
from tests.support.database import Database

WORKER = "tests.crash.programs.worker"

LEASE = 1.0
ROWS = "SELECT attempt, retry_after, error FROM jobs ORDER BY id"


def prepare(database: Database, count: int = 1) -> None:
    with Broker(database.url) as broker:
        jobs(broker).enqueue_many(range(count))


def test_an_extension_past_the_lease_changes_nothing_and_tells_the_delivery_while_its_handler_runs(
    database: Database,
) -> None:
    """PAINS 2"""
    prepare(database)
    with child(WORKER, database.url, act="wait", lease=LEASE) as paused:
        paused.wait_for("started 1 1")
        paused.signal(signal.SIGSTOP)
        with child(WORKER, database.url, act="wait", lease=LEASE) as other:
            other.wait_for("started 1 2")
            paused.signal(signal.SIGCONT)
            paused.wait_for("lease_lost 1")
            other.wait_for("extended", 2)  # the row is the other's still
            paused.tell("end")
            paused.wait_for("done 1")
            assert database.execute(ROWS) == [(2, None, None)]
            other.tell("end")
            other.wait_for("acknowledged 1")
        paused.signal(signal.SIGTERM)
        assert paused.exit_code() == 0
        assert len(paused.said("lease_lost")) == 1
        assert paused.said("acknowledged") == []
    assert database.execute(ROWS) == []


def test_rows_that_a_paused_process_gives_back_past_its_lease_stay_with_those_who_took_them(
    database: Database,
) -> None:
    """PAINS 2: it is told to stop while it stands still, with one row in work and two claimed ahead."""
    prepare(database, 3)
    with child(WORKER, database.url, act="wait", prefetch=2, lease=LEASE) as paused:
        paused.wait_for("started 1 1")
        paused.wait_for("extended")  # all three
        paused.signal(signal.SIGSTOP)
        with child(WORKER, database.url, act="wait", workers=3, lease=LEASE) as other:
            assert sorted(other.wait_for("started", 3)) == [f"started {id} 2" for id in (1, 2, 3)]
            paused.signal(signal.SIGTERM)
            paused.signal(signal.SIGCONT)
            paused.wait_for("lease_lost", 2)
            paused.tell("end")
            assert paused.exit_code() == 0
            assert sorted(line.split()[1] for line in paused.said("lease_lost")) == ["1", "2", "3"]
            assert paused.said("started") == ["started 1 1"]
            assert database.execute(ROWS) == [(2, None, None)] * 3
            for _ in range(3):
                other.tell("end")
            other.wait_for("acknowledged", 3)
    assert database.execute(ROWS) == []


def due_at(database: Database) -> datetime:
    """When the one row falls due, as the table says."""
    [(stored,)] = database.execute("SELECT retry_after FROM jobs")
    return stored if isinstance(stored, datetime) else datetime.fromisoformat(stored).replace(tzinfo=timezone.utc)


def test_a_row_reclaimed_from_a_killed_process_waits_its_back_off_whoever_looks(database: Database) -> None:
    """PAINS 19: the second attempt fails, so the third comes one to two seconds later."""
    prepare(database)
    events = ["claimed", "looked", "retried"]
    with child(WORKER, database.url, act="wait", lease=LEASE) as victim:
        victim.wait_for("started 1 1")
        victim.signal(signal.SIGKILL)
        with child(WORKER, database.url, act="wait", lease=LEASE, events=events) as second:
            second.wait_for("started 1 2")
            with child(WORKER, database.url, lease=LEASE, events=events) as third:
                third.wait_for("looked")
                failed = datetime.now(timezone.utc)
                second.tell("fail")
                second.wait_for("retried 1")
                due = due_at(database)
                second.signal(signal.SIGTERM)
                assert second.exit_code() == 0
                [claimed] = third.wait_for("claimed 1")
                third.wait_for("done 1")
    assert due - failed >= timedelta(seconds=1)
    since_claim = timedelta(seconds=monotonic() - float(claimed.split()[2]))
    millisecond = timedelta(milliseconds=1)  # events tell no finer
    assert datetime.now(timezone.utc) - since_claim >= due - millisecond
