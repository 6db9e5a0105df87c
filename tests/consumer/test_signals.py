"""SIGTERM and SIGINT to a real process: it finishes what is in work, gives back the rest and leaves."""

import os
import signal
import threading
from typing import Any

import pytest

from sqlqueue import Broker, Consumer
from tests.consumer.helpers import Inbox, insert, jobs, recorded, running, wait_until
from tests.support.children import Child, child
from tests.support.database import Database

SERVICE = "tests.consumer.service"

ROWS = "SELECT payload, attempt, locked_until FROM jobs ORDER BY id"


def prepare(database: Database, *numbers: int) -> None:
    with Broker(database.url) as broker:
        jobs(broker).enqueue_many(numbers)


def rows(database: Database) -> list[tuple[Any, ...]]:
    return [(int(bytes(payload)), attempt, lease) for payload, attempt, lease in database.execute(ROWS)]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_lets_handlers_finish_and_gives_back_what_was_claimed_ahead(
    database: Database, number: signal.Signals
) -> None:
    """PAINS 29"""
    prepare(database, 1, 2, 3, 4, 5)
    with child(SERVICE, database.url, workers=2, prefetch=2) as service:
        service.wait_for("handling", 2)
        service.signal(number)
        service.wait_for("released", 2)
        insert(database, 6)
        service.tell("end")
        service.wait_for("handled")
        service.tell("end")
        assert service.exit_code() == 0
        assert sorted(service.said("handled")) == ["handled 1", "handled 2"]
        assert len(service.said("handling")) == 2
        assert service.lines[-1] == "over"
    assert rows(database) == [(number, 0, None) for number in (3, 4, 5, 6)]


def test_rows_still_in_work_past_the_drain_timeout_are_given_back_and_the_process_leaves(database: Database) -> None:
    """PAINS 29"""
    prepare(database, 1, 2)
    with child(SERVICE, database.url, drain_timeout=0.2) as service:
        service.wait_for("handling")
        service.signal(signal.SIGTERM)
        assert service.exit_code() == 0
        assert service.said("handled") == []
    assert rows(database) == [(1, 0, None), (2, 0, None)]


def test_a_second_signal_gives_the_rows_back_and_leaves_at_once(database: Database) -> None:
    """PAINS 29"""
    prepare(database, 1, 2)
    with child(SERVICE, database.url, drain_timeout=600, prefetch=1) as service:
        service.wait_for("handling")
        service.signal(signal.SIGTERM)
        service.wait_for("released")  # the one ahead: the first signal has been heard
        service.signal(signal.SIGTERM)
        assert service.exit_code(5) == 128 + signal.SIGTERM
    assert rows(database) == [(1, 0, None), (2, 0, None)]


def test_an_idle_service_leaves_at_once(database: Database) -> None:
    prepare(database)
    with child(SERVICE, database.url, drain_timeout=600) as service:
        service.wait_for("looked")
        service.signal(signal.SIGTERM)
        assert service.exit_code(5) == 0
        assert service.lines[-1] == "over"


def ended(service: Child, pid: int) -> bool:
    """Whether the service has seen its child end, which is told to. Again and again: Python 3.13 misses a signal that
    comes to a thread which was forked, just before it waits."""
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return True
    return any(line.startswith("child") for line in service.lines)


def test_a_child_that_a_handler_forks_can_be_ended(sqlite_database: Database) -> None:
    """It inherits our signal handlers; SIGTERM ends it as it would without them, and the service goes on."""
    prepare(sqlite_database, -1, 1)
    with child(SERVICE, sqlite_database.url) as service:
        [line] = service.wait_for("forked")
        wait_until(lambda: ended(service, int(line.split()[1])))
        assert service.wait_for("child") == [f"child {signal.SIGTERM.value}"]
        service.wait_for("handling 1")
        service.tell("end")
        service.wait_for("acknowledged")
        service.signal(signal.SIGTERM)
        assert service.exit_code() == 0


def handlers() -> list[Any]:
    return [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]


def test_a_consumer_outside_the_main_thread_touches_no_signal(database: Database) -> None:
    """PAINS 29"""
    before = handlers()
    with Broker(database.url) as broker:
        jobs(broker).handler(Inbox().handle)
        with running(Consumer(broker)):
            assert handlers() == before
        consumer, _ = recorded(broker)
        with consumer:  # nor does a start in the main thread
            assert handlers() == before
    assert handlers() == before


def test_in_the_main_thread_the_signals_are_its_own_while_it_runs(database: Database) -> None:
    before = handlers()
    seen: list[list[Any]] = []
    with Broker(database.url) as broker:
        queue = jobs(broker)
        consumer, _ = recorded(broker)

        @queue.handler
        def handle(_: int) -> None:
            seen.append(handlers())
            os.kill(os.getpid(), signal.SIGTERM)  # to ourselves: the main thread is in run_forever

        queue.enqueue(1)
        assert threading.current_thread() is threading.main_thread()
        consumer.run_forever()
    [during] = seen
    assert not set(during) & set(before)
    assert handlers() == before
    assert rows(database) == []
