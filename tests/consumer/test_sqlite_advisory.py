"""Advisory locks on one SQLite file: two brokers of a process exclude each other, and forks keep nothing."""

import os
import signal

from sqlqueue import Broker
from tests.consumer.helpers import Gate, insert, recorded, wait_until
from tests.consumer.tables import jobs_by
from tests.support.children import child
from tests.support.database import Database

SERVICE = "tests.consumer.service"
WORKER = "tests.crash.programs.worker"


def test_two_brokers_in_one_process_hold_each_key_once(sqlite_database: Database) -> None:
    """Their pools, and so their side files, are two."""
    gates = Gate(), Gate()
    with (
        Broker(sqlite_database.url, poll_interval=0.05) as one,
        Broker(sqlite_database.url, poll_interval=0.05) as other,
    ):
        for broker, gate in zip((one, other), gates, strict=True):
            jobs_by("single", broker).handler(workers=2)(gate.handle)
        first, _ = recorded(one)
        second, recorder = recorded(other)
        with first:
            insert(sqlite_database, 1, 2)
            assert gates[0].next() == 1
            with second:
                recorder.wait_for("looked", count=3)
                assert gates[1].empty
                first.request_stop()  # so that the second row is the other's
                gates[0].open()
                assert gates[1].next() == 2
                gates[1].open()
                recorder.wait_for("acknowledged")
        assert gates[0].empty
    assert sqlite_database.execute("SELECT count(*) FROM jobs") == [(0,)]


def test_a_child_that_a_handler_forked_keeps_no_lock_of_its_parents(sqlite_database: Database) -> None:
    """The row of a process that was killed goes to another, though what it forked lives on."""
    with Broker(sqlite_database.url) as broker:
        jobs_by("advisory", broker).enqueue(-1)
    with child(SERVICE, sqlite_database.url, strategy="advisory") as service:
        [line] = service.wait_for("forked")
        forked = int(line.split()[1])
        with child(WORKER, sqlite_database.url, strategy="advisory") as other:
            other.wait_for("looked", 3)
            service.signal(signal.SIGKILL)
            assert other.wait_for("started") == ["started 1 2"]
            os.kill(forked, 0)  # it is there still
            other.wait_for("acknowledged")
    wait_until(lambda: sqlite_database.execute("SELECT count(*) FROM jobs") == [(0,)])
