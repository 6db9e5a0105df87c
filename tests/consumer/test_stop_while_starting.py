"""A stop that is asked for while a consumer starts, between whichever of its steps, ends that run."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from sqlqueue import Broker, Consumer
from sqlqueue.consumer.lifecycle import Lifecycle, State
from sqlqueue.consumer.subscription import Subscription
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, held_by
from sqlqueue.testing.contract.tables import CountedJob
from tests.consumer.helpers import LIMIT, Inbox
from tests.support.database import Database

#: Steps of a start, in their order, as they are called.
STEPS = [(Lifecycle, "move"), (Subscription, "reserve"), (Subscription, "prepare"), (Subscription, "start")]

ASKS = pytest.mark.parametrize(
    ("step", "before"),
    [(step, before) for step in STEPS for before in (True, False) if step != STEPS[0] or not before],
    ids=lambda one: one[1] if isinstance(one, tuple) else ("before" if one else "behind"),
)

WAYS = pytest.mark.parametrize("strategy", [LEASE, ADVISORY_LOCK])


def ask_at(monkeypatch: pytest.MonkeyPatch, step: tuple[type, str], before: bool, ask: Callable[[], None]) -> None:
    """Have `ask` called once, before a step of the start or behind it."""
    owner, name = step
    original, asked = getattr(owner, name), threading.Event()

    def stepped(*args: Any, **kwargs: Any) -> Any:
        first = not asked.is_set()
        asked.set()
        if first and before:
            ask()
        result = original(*args, **kwargs)
        if first and not before:
            ask()
        return result

    monkeypatch.setattr(owner, name, stepped)


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


def consumer_of(broker: Broker, strategy: str, inbox: Inbox) -> Consumer:
    """A consumer with a row to handle."""
    queue = broker.queue(held_by(strategy, CountedJob))
    queue.handler()(inbox.handle)
    broker.create_tables()
    queue.enqueue(1)
    return Consumer(broker)


@ASKS
@WAYS
def test_a_consumer_that_is_asked_to_stop_while_it_starts_claims_nothing(
    database: Database, monkeypatch: pytest.MonkeyPatch, inbox: Inbox, strategy: str, step: Any, before: bool
) -> None:
    with Broker(database.url) as broker:
        consumer = consumer_of(broker, strategy, inbox)
        ask_at(monkeypatch, step, before, consumer.request_stop)
        consumer.start()
        try:
            assert consumer.health().state == State.STOPPING.value
        finally:
            stopped = consumer.stop()
        assert (stopped.settled, stopped.abandoned) == (0, 0) or step == STEPS[-1]
        assert len(database.execute("SELECT id FROM counted_jobs")) == 1 - stopped.settled


@ASKS
def test_run_forever_that_is_asked_to_stop_while_it_starts_returns(
    database: Database, monkeypatch: pytest.MonkeyPatch, inbox: Inbox, step: Any, before: bool
) -> None:
    with Broker(database.url) as broker:
        consumer = consumer_of(broker, LEASE, inbox)
        ask_at(monkeypatch, step, before, consumer.request_stop)
        runs = threading.Thread(target=consumer.run_forever)
        runs.start()
        runs.join(LIMIT)
        ended = not runs.is_alive()
        consumer.stop()
        runs.join(LIMIT)
        assert ended


@pytest.mark.parametrize("before", [True, False])
def test_a_signal_before_there_is_anything_to_stop_ends_the_run(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, inbox: Inbox, before: bool
) -> None:
    with Broker(sqlite_database.url) as broker:
        consumer = consumer_of(broker, LEASE, inbox)
        ask_at(monkeypatch, (Lifecycle, "move"), before, lambda: os.kill(os.getpid(), signal.SIGTERM))
        consumer.run_forever()
        assert consumer.health().state == State.STOPPED.value
        assert len(sqlite_database.execute("SELECT id FROM counted_jobs")) == 1


def test_a_stop_by_another_thread_that_came_first_does_not_wait_for_the_server_of_a_start(
    sqlite_database: Database, monkeypatch: pytest.MonkeyPatch, inbox: Inbox
) -> None:
    """It asks the start that began meanwhile as well."""
    with Broker(sqlite_database.url) as broker:
        consumer = consumer_of(broker, LEASE, inbox)
        stopping = threading.Thread(target=consumer.stop)
        asked = threading.Event()

        def request_stop(self: Consumer) -> None:
            asked.set()
            self._lifecycle.request_stop()

        monkeypatch.setattr(Consumer, "request_stop", request_stop)

        def stop_and_wait() -> None:
            stopping.start()
            assert asked.wait(LIMIT)  # there was nothing to stop yet

        ask_at(monkeypatch, (Lifecycle, "move"), True, stop_and_wait)
        prepared = Subscription.prepare

        def prepare(subscription: Subscription, *args: Any) -> None:
            deadline = threading.Event()
            while not consumer._lifecycle.run.ending:
                assert not deadline.wait(0.01)
            prepared(subscription, *args)

        monkeypatch.setattr(Subscription, "prepare", prepare)
        consumer.start()
        stopping.join(LIMIT)
        assert not stopping.is_alive()
        assert consumer.health().state == State.STOPPED.value


def test_a_stop_of_a_consumer_that_does_not_run_is_not_for_its_next_start(
    sqlite_database: Database, inbox: Inbox
) -> None:
    with Broker(sqlite_database.url) as broker:
        consumer = consumer_of(broker, LEASE, inbox)
        consumer.request_stop()
        consumer.stop()
        with consumer:
            assert inbox.next() == 1
        consumer.request_stop()
        broker.queues[0].enqueue(2)
        with consumer:
            assert inbox.next() == 2
