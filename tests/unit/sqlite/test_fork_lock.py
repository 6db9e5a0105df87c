"""A fork waits for other threads that are inside SQLite, and for nothing else."""

import os
import sqlite3
import threading
from time import monotonic

import pytest

from sqlqueue_sqlite import database
from sqlqueue_sqlite.database import ForkLock

LIMIT = 10.0


class Inside(threading.Thread):
    """A thread inside the lock until it may leave."""

    def __init__(self, lock: ForkLock) -> None:
        super().__init__()
        self._lock, self.entered, self.leave = lock, threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with self._lock:
            self.entered.set()
            self.leave.wait(LIMIT)


def forking(lock: ForkLock) -> tuple[threading.Thread, threading.Event]:
    """A thread that forks, as far as the lock is asked."""
    forked = threading.Event()

    def fork() -> None:
        lock.before_fork()
        forked.set()
        lock.after_fork()

    thread = threading.Thread(target=fork)
    thread.start()
    return thread, forked


def test_a_fork_waits_for_a_thread_that_is_inside() -> None:
    lock = ForkLock()
    inside = Inside(lock)
    assert inside.entered.wait(LIMIT)
    thread, forked = forking(lock)
    assert not forked.wait(0.1)
    inside.leave.set()
    assert forked.wait(LIMIT)
    thread.join()
    inside.join()
    with lock:
        pass


def test_nobody_enters_while_a_fork_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = ForkLock()
    first = Inside(lock)
    assert first.entered.wait(LIMIT)
    thread, forked = forking(lock)
    while not lock.forking:
        pass
    second = Inside(lock)
    assert not second.entered.wait(0.1)
    first.leave.set()
    assert second.entered.wait(LIMIT)
    assert forked.is_set()
    second.leave.set()
    for one in (first, second, thread):
        one.join()


def test_a_thread_may_fork_and_enter_again_while_it_is_inside() -> None:
    lock = ForkLock()
    before = monotonic()
    with lock:
        lock.before_fork()
        lock.after_fork()
        with lock:
            lock.before_fork()
            lock.after_fork_in_child()
            with lock:
                pass
    lock.before_fork()
    lock.after_fork()
    assert monotonic() - before < database.FORK_TIMEOUT


def test_a_fork_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "FORK_TIMEOUT", 0.05)
    lock = ForkLock()
    inside = Inside(lock)
    assert inside.entered.wait(LIMIT)
    thread, forked = forking(lock)
    assert forked.wait(LIMIT)
    inside.leave.set()
    thread.join()
    inside.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_children_of_a_process_that_is_busy_in_sqlite_can_use_it() -> None:
    """Without the lock about one in fifty hangs in its first call."""
    stop = threading.Event()
    connection = sqlite3.connect(":memory:", check_same_thread=False)

    def busy() -> None:
        while not stop.is_set():
            with database.fork_lock:
                connection.execute("SELECT zeroblob(100)").fetchall()

    threads = [threading.Thread(target=busy)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(50):
            child = os.fork()
            if not child:
                sqlite3.connect(":memory:").execute("SELECT 1")
                os._exit(0)
            assert _ends(child)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        connection.close()


def _ends(child: int) -> bool:
    """Whether the child ends well in time."""
    pause, end = threading.Event(), monotonic() + LIMIT
    while monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status == 0
        pause.wait(0.001)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return False
