"""A second signal, and two signals that come together: the process leaves, whatever its handlers do."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.database import Database

LIMIT = 20.0  # seconds; the handler would take ten minutes

WORKER = """
import logging
import sys
import threading
from datetime import datetime

from sqlqueue import Broker, Consumer, column, table

logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")

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
    with at_work(sqlite_database) as worker:
        worker.send_signal(signal.SIGTERM)
        wait_for(worker, "stopping")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(LIMIT) == 128 + signal.SIGTERM
    assert sqlite_database.execute("SELECT attempt, locked_until FROM jobs") == [(0, None)]


@pytest.mark.parametrize("round", range(5))
def test_two_signals_that_come_together_are_both_heard(sqlite_database: Database, round: int) -> None:
    """The kernel may hand both to a thread other than the main one, which then sleeps on unless it looks up."""
    with at_work(sqlite_database) as worker:
        worker.send_signal(signal.SIGINT)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(LIMIT) in (128 + signal.SIGINT, 128 + signal.SIGTERM)
    assert sqlite_database.execute("SELECT attempt, locked_until FROM jobs") == [(0, None)]


@contextmanager
def at_work(database: Database) -> Iterator["subprocess.Popen[str]"]:
    """A worker whose handler is at work."""
    worker = subprocess.Popen([sys.executable, "-c", WORKER, database.url], stdout=subprocess.PIPE, text=True)
    try:
        wait_for(worker, "in work")
        yield worker
    finally:
        worker.kill()
        worker.communicate()


def wait_for(worker: "subprocess.Popen[str]", text: str) -> None:
    assert worker.stdout is not None
    assert any(text in line for line in worker.stdout), "it ended"
