"""The pool: lazy, bounded, last in first out, one process's own."""

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sqlqueue.dialect import PoolSettings, Trouble
from sqlqueue_sqlite.dialect import SQLiteDialect
from sqlqueue_sqlite.trouble import PoolClosedError, PoolTimeoutError
from tests.support import leftovers
from tests.unit.sqlite.conftest import OpenPool, ask, call

LIMIT = 10.0  # seconds for a thread to do its part


def test_nothing_is_opened_before_the_first_use(open_pool: OpenPool, path: Path) -> None:
    open_pool()
    assert not path.exists()


def test_probe_opens_one(open_pool: OpenPool, path: Path) -> None:
    open_pool().probe()
    assert path.exists()


def test_the_last_one_used_is_lent_first(open_pool: OpenPool) -> None:
    pool = open_pool(size=2)
    with pool.connection() as first, pool.connection() as second:
        assert first is not second
    with pool.connection() as again:
        assert again is first


def test_a_full_pool_times_out(open_pool: OpenPool, dialect: SQLiteDialect) -> None:
    pool = open_pool(size=1)
    with pool.connection():
        with (
            pytest.raises(PoolTimeoutError, match=r"all 1 connections .* in use for 0 s; raise pool_size") as raised,
            pool.connection(0),
        ):
            pass
        assert dialect.classify(raised.value) is Trouble.EXHAUSTED
    with pool.connection(0):
        pass


def test_a_waiter_gets_the_connection_that_comes_back(open_pool: OpenPool) -> None:
    pool = open_pool(size=1)
    got = threading.Event()

    def borrow() -> None:
        with pool.connection(LIMIT):
            got.set()

    with pool.connection():
        thread = threading.Thread(target=borrow)
        thread.start()
        assert not got.is_set()
    assert got.wait(LIMIT)
    thread.join(LIMIT)


def test_a_closed_pool_lends_nothing(open_pool: OpenPool, dialect: SQLiteDialect) -> None:
    pool = open_pool()
    pool.probe()
    pool.close()
    pool.close()
    with pytest.raises(PoolClosedError, match="was closed") as raised:
        pool.probe()
    assert dialect.classify(raised.value) is Trouble.CLOSED


def test_closing_wakes_those_who_wait(open_pool: OpenPool) -> None:
    pool = open_pool(size=1)
    refused = threading.Event()

    def borrow() -> None:
        try:
            with pool.connection(LIMIT):
                pass
        except PoolClosedError:
            refused.set()

    with pool.connection():
        thread = threading.Thread(target=borrow)
        thread.start()
        pool.close()
        assert refused.wait(LIMIT)
    thread.join(LIMIT)


def test_closing_leaves_no_file_open(open_pool: OpenPool, path: Path) -> None:
    pool = open_pool()
    with pool.connection() as lent:
        ask(lent, "SELECT 1")
        pool.close()
        ask(lent, "SELECT 1")  # until it comes back
    assert leftovers.open_files(path) == []


def test_a_connection_goes_back_as_it_came(open_pool: OpenPool) -> None:
    pool = open_pool()
    with pool.connection() as lent:
        lent.driver.row_factory = sqlite3.Row
        lent.driver.isolation_level = ""
        lent.driver.execute("BEGIN")
        lent.driver.execute("CREATE TABLE left_behind (a)")
    with pool.connection() as again:
        driver = again.driver
        assert again is lent
        assert (driver.in_transaction, driver.row_factory, driver.isolation_level) == (False, None, None)
        assert ask(again, "SELECT * FROM sqlite_master") == []


def test_a_connection_that_was_closed_is_replaced(open_pool: OpenPool, dialect: SQLiteDialect) -> None:
    pool = open_pool(size=1)
    with pool.connection() as lent:
        lent.driver.close()
        with pytest.raises(sqlite3.ProgrammingError) as raised:
            ask(lent, "SELECT 1")
        assert dialect.classify(raised.value) is Trouble.LOST
    with pool.connection(0) as other:
        assert ask(other, "SELECT 1") == [(1,)]


def test_a_connection_that_fails_oddly_is_replaced(open_pool: OpenPool, path: Path) -> None:
    pool = open_pool(size=1)
    with pool.connection() as lent:
        lent.driver.execute("CREATE TABLE t (a)")
        lent.driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        size = path.stat().st_size
        os.truncate(path, size // 2)  # by its path: to open it would drop SQLite's locks
        with pytest.raises(sqlite3.DatabaseError), open_pool(size=1).connection() as broken:
            ask(broken, "SELECT * FROM t")
    # What `is_spoiled` says of such an error decides.
    with pool.connection() as lent:
        lent.close()
    with pool.connection(0) as other:
        assert other is not lent


def test_an_open_that_fails_gives_its_place_back(open_pool: OpenPool, path: Path) -> None:
    path.mkdir()
    pool = open_pool(size=1)
    for _ in range(3):
        with pytest.raises(Exception, match="is a directory"):
            pool.probe()
    path.rmdir()
    pool.probe()


def test_a_rollback_journal_is_turned_into_a_log_once_its_writer_is_done(open_pool: OpenPool, path: Path) -> None:
    writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    writer.execute("CREATE TABLE t (a)")
    writer.execute("BEGIN EXCLUSIVE")
    threading.Timer(0.05, lambda: writer.execute("COMMIT")).start()
    with open_pool().connection() as lent:
        assert ask(lent, "PRAGMA journal_mode") == [("wal",)]
    writer.close()


FORK = """
import os, sys
from sqlqueue.dialect import PoolSettings
from sqlqueue_sqlite import sqlqueue_dialect
from sqlqueue_sqlite.trouble import PoolClosedError

dialect = sqlqueue_dialect(sys.argv[1])
pool = dialect.open_pool(PoolSettings())
with pool.connection() as lent:
    lent.driver.execute("CREATE TABLE t (a)")
descriptors = set(os.listdir("/proc/self/fd"))
child = os.fork()
if child == 0:
    try:
        with pool.connection():
            os._exit(1)
    except PoolClosedError as error:
        if "was forked" not in str(error):
            os._exit(2)
    pool.close()
    del pool, lent
    if set(os.listdir("/proc/self/fd")) < descriptors:
        os._exit(3)  # the parent's files were closed
    own = dialect.open_pool(PoolSettings())
    with own.connection() as mine:
        mine.driver.execute("INSERT INTO t VALUES (1)")
    own.close()
    os._exit(0)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
with pool.connection() as lent:
    rows = lent.driver.execute("SELECT a FROM t").fetchall()
pool.close()
sys.exit(code if rows == [(1,)] else 4)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_forked_process_opens_a_pool_of_its_own_and_leaves_the_parents_alone(path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORK, f"sqlite:///{path}"], check=False, timeout=30, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_lent_connections_never_exceed_the_size(dialect: SQLiteDialect, open_pool: OpenPool) -> None:
    pool = open_pool(size=3)
    lent: set[int] = set()
    most, lock = [0], threading.Lock()

    def borrow() -> None:
        for _ in range(20):
            with pool.connection(LIMIT) as connection:
                with lock:
                    lent.add(id(connection))
                    most[0] = max(most[0], len(lent))
                connection.run([call("SELECT 1", writes=False)])
                with lock:
                    lent.discard(id(connection))

    threads = [threading.Thread(target=borrow) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert most[0] <= 3
    assert pool.size == PoolSettings(size=3).size
