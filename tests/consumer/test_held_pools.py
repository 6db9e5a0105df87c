"""All handlers hold connections, on a pool no larger than the workers: their leases are extended all the same."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from sqlqueue import Broker, Delivery
from tests.consumer.helpers import HOUR, Gate, jobs, recorded
from tests.support.database import Database

LEASE = 0.6  # seconds


def run(broker: Broker, hold: Callable[[], AbstractContextManager[Any]]) -> None:
    """Two workers, each holding what `hold()` lends for three leases, and one row each."""
    gate = Gate()

    def handle(number: int, delivery: Delivery) -> None:
        with hold():
            gate.handle(number, delivery)

    queue = jobs(broker)
    queue.handler(workers=2, lease=LEASE)(handle)
    queue.enqueue_many([1, 2])
    consumer, recorder = recorded(broker)
    with consumer:
        assert sorted(gate.some(2)) == [1, 2]
        extended = recorder.wait_for("extended", count=6)  # every half lease: three leases
        assert {event.detail for event in extended} == {2}
        gate.open()
        recorder.wait_for("acknowledged", count=2)
        assert gate.empty
        assert recorder.of("lease_lost") == []


def test_with_the_brokers_own_pool(database: Database) -> None:
    """PAINS 14"""
    with Broker(database.url, pool_size=2, poll_interval=HOUR) as broker:
        run(broker, lambda: broker.pool.connection())


def test_with_a_pool_of_the_users(postgres_database: Database) -> None:
    """PAINS 14"""
    from psycopg_pool import ConnectionPool  # which need not be there

    with (
        ConnectionPool(postgres_database.url, min_size=2, max_size=2, open=True) as pool,
        Broker(pool, poll_interval=HOUR) as broker,
    ):
        run(broker, pool.connection)
