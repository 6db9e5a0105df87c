"""A wake-up that comes at the worst moment: after the look and before the wait, or while a claim is under way."""

import threading
from collections.abc import Callable

import pytest

from sqlqueue import Broker, Consumer
from sqlqueue.observers import Event
from tests.consumer.helpers import HOUR, LIMIT, Inbox, insert, jobs, recorded
from tests.support.database import Database


class Once:
    """An observer that does something the first time that an event comes, in the very thread that tells it."""

    def __init__(self, kind: str, act: Callable[[], object]) -> None:
        self._kind, self._act = kind, act
        self.done = threading.Event()

    def notice(self, event: Event) -> None:
        if event.kind == self._kind and not self.done.is_set():
            self.done.set()
            self._act()


@pytest.mark.parametrize("moment", ["looked", "claimed", "started", "acknowledged"])
def test_a_row_enqueued_between_the_look_and_the_wait_is_not_forgotten(database: Database, moment: str) -> None:
    """SUITE 119 131"""
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        queue.enqueue(1)
        with Consumer(broker, observers=[Once(moment, lambda: queue.enqueue(2))]):
            assert inbox.some(2) == [1, 2]


def test_a_row_that_another_program_writes_between_the_look_and_the_wait_is_not_forgotten(database: Database) -> None:
    """SUITE 131"""
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR, notify=True) as broker:
        jobs(broker).handler(inbox.handle)  # on PostgreSQL with the trigger
        with Consumer(broker, observers=[Once("looked", lambda: insert(database, 1))]):
            assert inbox.next() == 1


def test_a_stop_requested_between_the_look_and_the_wait_ends_the_run(database: Database) -> None:
    """SUITE 131"""
    with Broker(database.url, poll_interval=HOUR) as broker:
        jobs(broker).handler(Inbox().handle)
        consumer: Consumer
        once = Once("looked", lambda: consumer.request_stop())
        consumer = Consumer(broker, observers=[once])
        run = threading.Thread(target=consumer.run_forever)
        run.start()
        run.join(LIMIT)
        assert not run.is_alive()
        assert consumer.health().state == "stopped"


def test_wake_ups_that_come_while_nobody_waits_are_one_look(database: Database) -> None:
    inbox = Inbox()
    hold, held, go_on = threading.Event(), threading.Event(), threading.Event()

    def stand_still() -> None:
        held.set()
        assert hold.wait(LIMIT)

    def work(number: int) -> None:
        inbox.handle(number)
        assert go_on.wait(LIMIT)

    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(workers=50)(work)
        consumer, recorder = recorded(broker)
        consumer = Consumer(broker, observers=[Once("looked", stand_still), recorder])
        with consumer:
            assert held.wait(LIMIT)
            for number in range(20):
                queue.enqueue(number)
            hold.set()
            assert sorted(inbox.some(20)) == list(range(20))
            queue.enqueue(20)  # behind whatever the others asked for
            assert inbox.next() == 20
            # The first look; the claim of all twenty, which finds fewer than fifty; that of the last; and what the
            # commits themselves may have told meanwhile.
            looked = len(recorder.of("looked"))
            go_on.set()
        assert looked <= 5
