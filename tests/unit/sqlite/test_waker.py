"""The watcher: hints for other programs' commits, through any trouble."""

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sqlqueue.dialect import Connection, Hint
from sqlqueue_sqlite.dialect import SQLiteDialect
from sqlqueue_sqlite.waker import DataVersionWaker
from tests.support.database import Database
from tests.unit.sqlite.conftest import OpenPool, dialect_of

LIMIT = 10.0  # seconds for a hint to come

WRITER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=10, isolation_level=None)
for line in sys.stdin:
    connection.execute("INSERT INTO jobs (payload) VALUES (x'00')")
    print("written", flush=True)
connection.close()
"""


class Hints:
    """Collects hints; `next` waits for one that comes after it was last asked."""

    def __init__(self) -> None:
        self.all: list[Hint] = []
        self._come = threading.Event()

    def __call__(self, hint: Hint) -> None:
        self.all.append(hint)
        self._come.set()

    def next(self) -> bool:
        come = self._come.wait(LIMIT)
        self._come.clear()
        return come


StartWaker = Callable[..., Hints]


@pytest.fixture
def start(dialect: SQLiteDialect, open_pool: OpenPool) -> Iterator[StartWaker]:
    """Start a waker on the test's file; returns the hints that it gives."""
    with ExitStack() as until_end:

        def start_one(on: SQLiteDialect | None = None, hints: Hints | None = None) -> Hints:
            hints = hints or Hints()
            waker = (on or dialect).waker(open_pool(on), ["jobs"], hints, notify=False)
            assert waker is not None
            waker.start()
            until_end.callback(waker.stop)
            return hints

        yield start_one


def test_another_process_wakes_us(connection: Connection, start: StartWaker, path: Path) -> None:
    hints = start()
    assert hints.next()  # for what was committed before
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for _ in range(3):
            print(file=writer.stdin, flush=True)
            assert writer.stdout.readline() == "written\n"
            assert hints.next()
        writer.stdin.close()
        assert writer.wait(LIMIT) == 0
    assert set(hints.all) == {Hint()}


def test_nothing_written_is_no_hint(connection: Connection, dialect: SQLiteDialect, path: Path) -> None:
    hints = Hints()
    waker = dialect.waker(None, [], hints, notify=True)  # type: ignore[arg-type]
    assert isinstance(waker, DataVersionWaker)
    for _ in range(5):
        assert waker.step() == 0.005
    assert len(hints.all) == 1
    connection.driver.execute("INSERT INTO jobs (payload) VALUES (x'')")
    waker.step()
    assert len(hints.all) == 2
    waker._disconnect()


def test_a_file_that_is_created_later_is_watched(
    start: StartWaker, path: Path, sqlite_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sqlqueue_sqlite")
    hints = start()
    assert not path.exists()
    sqlite_database.execute("CREATE TABLE jobs (payload)")
    assert hints.next()
    sqlite_database.execute("INSERT INTO jobs VALUES (1)")
    assert hints.next()


def test_trouble_is_logged_once_and_so_is_its_end(
    dialect: SQLiteDialect, sqlite_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sqlqueue_sqlite")
    hints = Hints()
    waker = dialect.waker(None, [], hints, notify=False)  # type: ignore[arg-type]
    assert isinstance(waker, DataVersionWaker)
    pauses = [waker.step() for _ in range(20)]
    assert pauses[0] <= 0.1
    assert 2.5 <= pauses[-1] <= 5.0
    sqlite_database.execute("CREATE TABLE jobs (payload)")
    assert waker.step() == 0.005
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert str(dialect.source) in caplog.text
    waker._disconnect()


def test_a_callback_that_raises_ends_nothing(connection: Connection, start: StartWaker) -> None:
    class Raising(Hints):
        def __call__(self, hint: Hint) -> None:
            super().__call__(hint)
            if len(self.all) == 1:
                raise RuntimeError("no")

    hints = start(hints=Raising())
    assert hints.next()
    assert hints.next()  # it connected again


def test_a_database_in_memory_is_watched(open_pool: OpenPool, start: StartWaker) -> None:
    dialect = dialect_of("sqlite://")
    with open_pool(dialect).connection() as writer:
        writer.driver.execute("CREATE TABLE jobs (payload)")
        hints = start(dialect)
        assert hints.next()
        writer.driver.execute("BEGIN IMMEDIATE")
        writer.driver.execute("INSERT INTO jobs VALUES (1)")
        writer.driver.execute("COMMIT")
        assert hints.next()


def test_a_waker_that_was_never_started_stops(dialect: SQLiteDialect) -> None:
    waker = dialect.waker(None, [], Hints(), notify=False)  # type: ignore[arg-type]
    assert waker is not None
    waker.stop()


def test_its_own_callback_may_stop_it(connection: Connection, dialect: SQLiteDialect) -> None:
    stopped = threading.Event()

    def stop(hint: Hint) -> None:
        assert waker is not None
        waker.stop()
        stopped.set()

    waker = dialect.waker(None, [], stop, notify=False)  # type: ignore[arg-type]
    assert waker is not None
    waker.start()
    assert stopped.wait(LIMIT)
    waker.stop()
