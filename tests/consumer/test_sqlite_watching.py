"""On SQLite a watcher sees other programs' commits, so an idle queue runs no claims."""

import subprocess
import sys
import threading

from sqlqueue import Broker
from tests.consumer.helpers import HOUR, INSERT, Gate, Inbox, insert, jobs, recorded, wait_idle
from tests.support.database import Database

WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=10)
with connection:
    connection.execute(sys.argv[2], [b"7"])
connection.close()
"""


class Statements:
    """Counts what a pool of one connection runs, by SQLite's own trace; those that say `says`."""

    def __init__(self, broker: Broker, says: str = "") -> None:
        self._says = says
        self.count = 0
        self.seen = threading.Event()
        with broker.pool.connection() as connection:
            connection.driver.set_trace_callback(self._trace)

    def _trace(self, text: str) -> None:
        if self._says in text:
            self.count += 1
            self.seen.set()

    def settle(self) -> None:
        """Wait until nothing has come for 0.2 s, and count from 0 again."""
        while self.seen.wait(0.2):
            self.seen.clear()
        self.count = 0


def test_an_idle_queue_runs_no_statement_at_all(sqlite_database: Database) -> None:
    inbox = Inbox()
    with Broker(sqlite_database.url, poll_interval=0.01, pool_size=1) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        statements = Statements(broker)
        consumer, _ = recorded(broker)
        with consumer:
            queue.enqueue(1)
            insert(sqlite_database, 2)
            assert sorted(inbox.some(2)) == [1, 2]
            statements.settle()
            assert not statements.seen.wait(0.5)  # fifty polls long
    assert statements.count == 0


def test_a_commit_to_another_table_costs_one_claim(sqlite_database: Database) -> None:
    sqlite_database.execute("CREATE TABLE elsewhere (value)")
    with Broker(sqlite_database.url, poll_interval=HOUR, pool_size=1) as broker:
        jobs(broker).handler(Inbox().handle)
        claims = Statements(broker, "claim by lease")
        consumer, _ = recorded(broker)
        with consumer:
            claims.settle()
            sqlite_database.execute("INSERT INTO elsewhere VALUES (1)")
            assert claims.seen.wait(5)
            claims.seen.clear()
            assert not claims.seen.wait(0.2)
            assert claims.count == 1


def test_a_row_of_another_process_is_handled_at_once(sqlite_database: Database) -> None:
    inbox = Inbox()
    with Broker(sqlite_database.url, poll_interval=HOUR) as broker:
        jobs(broker).handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            wait_idle(recorder)
            subprocess.run([sys.executable, "-c", WRITER, sqlite_database.name, INSERT], check=True, timeout=30)
            assert inbox.next(1) == 7


def test_a_database_in_memory_is_worked_by_its_own_broker() -> None:
    inbox = Inbox()
    with Broker("sqlite://", poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            wait_idle(recorder)
            queue.enqueue(1)
            queue.enqueue(2, delay=0.1)
            assert inbox.some(2) == [1, 2]


def test_a_busy_queue_is_watched_as_well(sqlite_database: Database) -> None:
    gate = Gate()
    with Broker(sqlite_database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(workers=2)(gate.handle)
        consumer, _ = recorded(broker)
        with consumer:
            queue.enqueue(1)
            assert gate.next() == 1
            insert(sqlite_database, 2)
            assert gate.next(1) == 2
            gate.open()
