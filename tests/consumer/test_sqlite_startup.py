"""Starts on a SQLite file that cannot be written, is none, or is not there."""

import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest

from sqlqueue import Broker, Consumer, SchemaError
from tests.consumer.helpers import Inbox, Job, jobs
from tests.support.children import ROOT
from tests.support.database import Database

NOBODY = 65534

#: Starts a consumer as somebody whom file modes bind, which they do not bind root. First on another database, for
#: what is imported late: that somebody may not be able to read Python's own files.
AS_NOBODY = f"""
import os, sys
from sqlqueue import Broker, Consumer
from tests.consumer.helpers import Inbox, Job

def start(url):
    with Broker(url) as broker:
        broker.queue(Job).handler(Inbox().handle)
        try:
            Consumer(broker, startup_timeout=5).start()
        except Exception as error:
            return f"{{type(error).__name__}}: {{error}}"

start("sqlite://")
if os.geteuid() == 0:
    os.setgroups([])
    os.setuid({NOBODY})
sys.stdout.write(start(sys.argv[1]))
"""


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that others may look into, unlike pytest's."""
    with tempfile.TemporaryDirectory() as made:
        path = Path(made)
        path.chmod(0o755)
        yield path
        path.chmod(0o755)


@pytest.mark.parametrize("journal", ["delete", "wal"])
@pytest.mark.parametrize("what", ["the file", "the directory too"])
def test_a_file_that_can_only_be_read_is_refused_at_once(directory: Path, journal: str, what: str) -> None:
    file = directory / "shop.db"
    with Broker(f"sqlite:///{file}") as broker:
        jobs(broker).enqueue(1)
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute(f"PRAGMA journal_mode = {journal}").fetchone() == (journal,)
    file.chmod(0o444)
    directory.chmod(0o555 if what == "the directory too" else 0o777)
    before = monotonic()
    command = [sys.executable, "-c", AS_NOBODY, f"sqlite:///{file}"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True)
    assert told.stdout.startswith(f"SchemaError: the SQLite database {file} can only be read")
    assert monotonic() - before < 5  # it did not wait for the file to change
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT attempt, locked_until FROM jobs").fetchall() == [(0, None)]


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "shop.db"
    file.write_text("no database, but a text that is long enough to have the length of a header" * 20)
    with Broker(f"sqlite:///{file}") as broker:
        broker.queue(Job).handler(Inbox().handle)
        with pytest.raises(sqlite3.DatabaseError, match=f"file is not a database: {file}"):
            Consumer(broker).start()


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with Broker(f"sqlite:///{tmp_path}/nowhere/shop.db") as broker:
        broker.queue(Job).handler(Inbox().handle)
        with pytest.raises(SchemaError, match=f"there is no directory {tmp_path}/nowhere"):
            Consumer(broker).start()


def test_a_misspelt_column_is_no_string_literal(sqlite_database: Database) -> None:
    """SUITE 6"""
    with Broker(sqlite_database.url) as broker:
        queue = jobs(broker)
        queue.handler(Inbox().handle)
        sqlite_database.execute("ALTER TABLE jobs RENAME COLUMN retry_after TO retry_afer")
        with pytest.raises(SchemaError, match=r"no column 'retry_after'.*retry_afer"):
            Consumer(broker).start()
