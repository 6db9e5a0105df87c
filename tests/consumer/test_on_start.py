"""What a service does once its consumer is open, and before it goes on."""

from typing import Any

import pytest

from sqlqueue import Broker, Consumer
from tests.consumer.helpers import HOUR, Inbox, jobs, running, wait_until
from tests.support.database import Database


def test_it_is_called_by_each_start_once_the_consumer_runs(database: Database) -> None:
    states: list[str] = []
    inbox = Inbox()
    with Broker(database.url, poll_interval=HOUR) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)

        def on_start() -> None:
            state = consumer.health().state
            queue.enqueue(7)
            assert inbox.next() == 7
            states.append(state)  # last: the test stops the consumer then, and the row may not wait for its handler

        consumer = Consumer(broker, on_start=on_start)
        for _ in range(2):
            with consumer:
                pass
        with running(consumer):
            wait_until(lambda: len(states) == 3)
        consumer.run_until_idle()
    assert states == ["running"] * 4


@pytest.mark.parametrize("run", ["start", "run_forever", "run_until_idle", "__enter__"])
def test_where_it_raises_the_consumer_stops_and_the_start_raises_that(database: Database, run: str) -> None:
    with Broker(database.url, poll_interval=HOUR) as broker:
        jobs(broker).handler(lambda message: None)
        consumer = Consumer(broker, on_start=_fail)
        call: Any = getattr(consumer, run)
        with pytest.raises(ZeroDivisionError):
            call()
        assert consumer.health().state == "stopped"


def _fail() -> None:
    raise ZeroDivisionError


def test_a_stop_that_is_asked_for_meanwhile_ends_the_run(database: Database) -> None:
    with Broker(database.url, poll_interval=HOUR) as broker:
        jobs(broker).handler(lambda message: None)
        consumer = Consumer(broker, on_start=lambda: consumer.request_stop())
        consumer.run_forever()
        assert consumer.health().state == "stopped"
