"""Locks on keys between processes: they exclude each other, and end with the process that took them."""

import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sqlqueue.errors import Unsupported
from sqlqueue_sqlite.database import parse
from sqlqueue_sqlite.locks import FileLocks, LockMethod, WholeFile
from tests.support.children import LIMIT, Child, child
from tests.support.database import Database

HOLDER = "tests.crash.programs.key_holder"
COUNTS = 300

StartHolder = Callable[..., Child]


def ask(holder: Child, line: str) -> str:
    """What the process says to a line."""
    holder.tell(line)
    verb = line.split()[0]
    return holder.wait_for(verb)[0].removeprefix(verb).strip()


def kill(holder: Child) -> None:
    """End the process itself; what it forked lives on."""
    holder.signal(signal.SIGKILL)
    assert holder.process.wait(LIMIT) == -signal.SIGKILL


@pytest.fixture
def start_holder(sqlite_database: Database) -> Iterator[StartHolder]:
    with ExitStack() as until_end:

        def start(**options: bool) -> Child:
            holder = until_end.enter_context(child(HOLDER, sqlite_database.url, **options))
            holder.wait_for("ready")
            return holder

        yield start


@pytest.fixture
def make_locks(sqlite_database: Database) -> Iterator[Callable[..., FileLocks]]:
    """Locks of this process on the test's file."""
    with ExitStack() as until_end:

        def make(method: LockMethod | None = None) -> FileLocks:
            locks = FileLocks(parse(sqlite_database.url), method=method)
            until_end.callback(locks.close)
            return locks

        yield make


def test_a_key_that_another_process_holds_is_refused_until_it_is_unlocked(
    start_holder: StartHolder, make_locks: Callable[..., FileLocks]
) -> None:
    holder, locks = start_holder(), make_locks()
    assert ask(holder, "lock a") == "True"
    assert not locks.try_lock("a")
    assert locks.try_lock("b")
    assert ask(holder, "lock b") == "False"
    assert ask(holder, "unlock a") == "True"
    assert locks.try_lock("a")


def test_the_kernel_unlocks_what_a_killed_process_held(
    start_holder: StartHolder, make_locks: Callable[..., FileLocks]
) -> None:
    holder, locks = start_holder(), make_locks()
    assert ask(holder, "lock a") == "True"
    assert not locks.try_lock("a")
    kill(holder)
    assert locks.try_lock("a")


def test_processes_that_race_for_a_key_have_it_one_at_a_time(start_holder: StartHolder, tmp_path: Path) -> None:
    number = tmp_path / "number"
    number.write_text("0")
    holders = [start_holder(), start_holder()]
    for holder in holders:
        holder.tell(f"count a {number} {COUNTS}")
    for holder in holders:
        assert holder.wait_for("count") == [f"count {COUNTS}"]
    assert number.read_text() == str(2 * COUNTS)


def test_a_forked_child_neither_has_nor_ends_its_parents_locks(
    start_holder: StartHolder, make_locks: Callable[..., FileLocks]
) -> None:
    forked, locks = start_holder(), make_locks()
    assert ask(forked, "lock a") == "True"
    assert ask(forked, "fork") == "child"
    assert ask(forked, "unlock a") == "False"
    assert ask(forked, "lock a") == "False"
    assert ask(forked, "lock b") == "True"
    assert not locks.try_lock("b")  # the child's own
    assert ask(forked, "close") == "None"
    assert locks.try_lock("b")
    assert not locks.try_lock("a")


def test_a_forked_child_does_not_keep_the_locks_of_a_parent_that_is_killed(
    start_holder: StartHolder, make_locks: Callable[..., FileLocks]
) -> None:
    forked, locks = start_holder(), make_locks()
    assert ask(forked, "lock a") == "True"
    assert ask(forked, "fork") == "child"
    kill(forked)
    assert locks.try_lock("a")
    assert ask(forked, "lock a") == "False"  # it lives, and finds them held


def test_sqlites_own_locks_outlive_ours(
    start_holder: StartHolder, make_locks: Callable[..., FileLocks], sqlite_database: Database
) -> None:
    """Closing any descriptor of the database's file would end them."""
    other, locks = start_holder(), make_locks()
    writer = sqlite3.connect(sqlite_database.name, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    locks.open()
    assert locks.try_lock("a")
    locks.close()
    assert ask(other, "write") == "database is locked"
    writer.close()
    assert ask(other, "write") == "begun"


def test_a_second_process_is_refused_where_only_the_whole_file_can_be_locked(
    start_holder: StartHolder, make_locks: Callable[..., FileLocks]
) -> None:
    holder, locks = start_holder(whole_file=True), make_locks(WholeFile())
    assert ask(holder, "open") == "None"
    with pytest.raises(Unsupported, match="another consumer process or broker has "):
        locks.open()
    kill(holder)
    locks.open()
    assert locks.try_lock("a")


def test_a_forked_child_is_refused_the_whole_file_and_does_not_keep_it(
    start_holder: StartHolder, make_locks: Callable[..., FileLocks]
) -> None:
    forked, locks = start_holder(whole_file=True), make_locks(WholeFile())
    assert ask(forked, "lock a") == "True"
    assert ask(forked, "fork") == "child"
    assert ask(forked, "lock b") == "refused"
    kill(forked)
    locks.open()
    assert ask(forked, "open") == "refused"
