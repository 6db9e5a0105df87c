"""A fork waits for other threads that are inside SQLite, and for nothing else."""

import os
import sqlite3
import threading
from time import monotonic

import pytest

from sqlqueue_sqlite import forks
from sqlqueue_sqlite.forks import ForkGate

LIMIT = 10.0


class Inside(threading.Thread):
    """A thread inside the gate until it may leave."""

    def __init__(self, gate: ForkGate) -> None:
        super().__init__()
        self._gate, self.entered, self.leave = gate, threading.Event(), threading.Event()
        self.start()

    def run(self) -> None:
        with self._gate:
            self.entered.set()
            self.leave.wait(LIMIT)


def forking(gate: ForkGate) -> tuple[threading.Thread, threading.Event]:
    """A thread that forks, as far as the gate is asked."""
    forked = threading.Event()

    def fork() -> None:
        gate.before_fork()
        forked.set()
        gate.after_fork()

    thread = threading.Thread(target=fork)
    thread.start()
    return thread, forked


def test_a_fork_waits_for_a_thread_that_is_inside() -> None:
    gate = ForkGate()
    inside = Inside(gate)
    assert inside.entered.wait(LIMIT)
    thread, forked = forking(gate)
    assert not forked.wait(0.1)
    inside.leave.set()
    assert forked.wait(LIMIT)
    thread.join()
    inside.join()
    with gate:
        pass


def test_nobody_enters_while_a_fork_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = ForkGate()
    first = Inside(gate)
    assert first.entered.wait(LIMIT)
    thread, forked = forking(gate)
    while not gate._forking:
        pass
    second = Inside(gate)
    assert not second.entered.wait(0.1)
    first.leave.set()
    assert second.entered.wait(LIMIT)
    assert forked.is_set()
    second.leave.set()
    for one in (first, second, thread):
        one.join()


def test_a_thread_may_fork_and_enter_again_while_it_is_inside() -> None:
    gate = ForkGate()
    before = monotonic()
    with gate:
        gate.before_fork()
        gate.after_fork()
        with gate:
            gate.before_fork()
            gate.after_fork_in_child()
            with gate:
                pass
    gate.before_fork()
    gate.after_fork()
    assert monotonic() - before < forks.PATIENCE


def test_a_fork_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "PATIENCE", 0.05)
    gate = ForkGate()
    inside = Inside(gate)
    assert inside.entered.wait(LIMIT)
    thread, forked = forking(gate)
    assert forked.wait(LIMIT)
    inside.leave.set()
    thread.join()
    inside.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_children_of_a_process_that_is_busy_in_sqlite_can_use_it() -> None:
    """Without the gate about one in fifty hangs in its first call."""
    stop = threading.Event()
    connection = sqlite3.connect(":memory:", check_same_thread=False)

    def busy() -> None:
        while not stop.is_set():
            with forks.fork_gate:
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
