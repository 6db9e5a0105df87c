"""A second signal, and two signals that come together: the process leaves, whatever its handlers do."""

import signal
import subprocess
import sys

import pytest

from tests.support.database import Database

LIMIT = 20.0  # seconds; the handler would take ten minutes

WORKER = """
import sys
import threading
from datetime import datetime

from sqlqueue import Broker, Consumer, column, table

@table("jobs")
class Job:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    attempt: int = column.attempt()
    payload: bytes = column.payload()

with Broker(sys.argv[1]) as broker:
    queue = broker.queue(Job)

    @queue.handler(workers=2)
    def work(message: str) -> None:
        print(message, flush=True)
        threading.Event().wait(600)

    broker.create_tables()
    queue.enqueue("in work")
    Consumer(broker, drain_timeout=600).run_forever()
"""


def test_a_second_signal_gives_the_rows_back_and_leaves_at_once(sqlite_database: Database) -> None:
    """SPEC 13, PAINS 29: with code 128 + the second signal's number; the row and its attempt are as before."""
    assert leave(sqlite_database, signal.SIGTERM, signal.SIGTERM) == 128 + signal.SIGTERM
    assert sqlite_database.execute("SELECT attempt, locked_until FROM jobs") == [(0, None)]


@pytest.mark.parametrize("round", range(5))
def test_two_signals_that_come_together_are_both_heard(sqlite_database: Database, round: int) -> None:
    """The kernel may hand both to a thread other than the main one, which then sleeps on unless it looks up."""
    code = leave(sqlite_database, signal.SIGINT, signal.SIGTERM)
    assert code in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert sqlite_database.execute("SELECT attempt, locked_until FROM jobs") == [(0, None)]


def leave(database: Database, *signals: signal.Signals) -> int:
    """Send the signals to a worker whose handler is at work; its exit code."""
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, database.url], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert worker.stdout is not None
        with worker.stdout as said:
            assert said.readline() == "in work\n"
            for number in signals:
                worker.send_signal(number)
            return worker.wait(LIMIT)
    finally:
        worker.kill()
        worker.wait()
