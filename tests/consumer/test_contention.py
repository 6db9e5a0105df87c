"""Several consumers and producers on one table at once: nobody is told of a deadlock, and no row runs apart."""

import random
import threading
from collections import Counter
from contextlib import ExitStack
from time import monotonic

import pytest

from sqlqueue import Broker, Consumer, Retry
from sqlqueue.testing import Recorder
from tests.consumer.helpers import wait_until
from tests.consumer.tables import jobs_by
from tests.support.database import Database
from tests.support.strategies import EVERY, by_strategy

SECONDS, MOST = 1.5, 400  # that each producer takes, and rows
CONSUMERS = 8
LEASE = 2.0
TROUBLES = ("trouble", "lease_lost", "gone", "released")


class Handler:
    """Succeeds, asks for another delivery, fails, or outlasts half of its lease, by chance."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def handle(self, number: int) -> None:
        chance = self._chance.random()
        if chance < 0.2:
            raise Retry
        if chance < 0.3:
            raise ValueError("it fails by chance")
        if chance < 0.303:
            threading.Event().wait(0.6 * LEASE)


class Producer(threading.Thread):
    """Enqueues one row after the other, and now and then some in one transaction."""

    def __init__(self, broker: Broker, strategy: str) -> None:
        super().__init__()
        self._queue = jobs_by(strategy, broker)
        self.enqueued = 0
        self.error: Exception | None = None

    def run(self) -> None:
        end = monotonic() + SECONDS
        try:
            while monotonic() < end and self.enqueued < MOST:
                if self.enqueued % 10 == 0:
                    self.enqueued += self._queue.enqueue_many(range(5))
                self._queue.enqueue(0)
                self.enqueued += 1
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error


@pytest.mark.sample("sqlite-lease", "postgres-row", "postgres-advisory")
@by_strategy(*EVERY)
def test_eight_consumers_and_two_producers_never_meet_an_error(database: Database, strategy: str) -> None:
    """PAINS 23: claims, acknowledgements, retries, failures and extensions beside inserts."""
    recorders = [Recorder() for _ in range(CONSUMERS)]
    with ExitStack() as until_end:
        brokers = [
            until_end.enter_context(Broker(database.url, poll_interval=0.05, lease=LEASE, pool_size=12))
            for _ in range(3)
        ]
        for seed, broker in enumerate(brokers[:2]):
            jobs_by(strategy, broker).handler(workers=2, retry=0.02)(Handler(seed).handle)
        for broker, recorder in zip(brokers[:2] * (CONSUMERS // 2), recorders, strict=True):
            until_end.enter_context(Consumer(broker, observers=[recorder]))
        producers = [Producer(brokers[2], strategy) for _ in range(2)]
        for producer in producers:
            producer.start()
        for producer in producers:
            producer.join()
        wait_until(lambda: database.execute("SELECT count(*) FROM jobs") == [(0,)], 20)
    assert [producer.error for producer in producers] == [None, None]
    assert [recorder.of(*TROUBLES) for recorder in recorders] == [[]] * CONSUMERS
    acknowledged = Counter(event.id for recorder in recorders for event in recorder.of("acknowledged"))
    assert acknowledged == Counter(range(1, sum(producer.enqueued for producer in producers) + 1))
    assert all(recorder.of("acknowledged") for recorder in recorders)
    assert any(recorder.of("retried") for recorder in recorders)
