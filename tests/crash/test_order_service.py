"""Consumers of an order service are killed at every point between claim and commit: nothing is lost or done twice."""

import signal
from contextlib import ExitStack

import pytest

from sqlqueue import Broker
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, ROW_LOCK
from tests.consumer.helpers import wait_until
from tests.crash.programs.shop_worker import POINTS
from tests.crash.shop import ORDERS, shop_on
from tests.support.children import child
from tests.support.database import Database

WORKER = "tests.crash.programs.shop_worker"
ROWS = 120
#: A process comes by its point so often and is killed there.
PASSES = 2


def check_all_points(database: Database, strategy: str) -> None:
    with Broker(database.url) as broker:
        shop = shop_on(broker, strategy)
        broker.create_tables()
        database.execute(ORDERS)
        amounts = range(1, ROWS + 1)
        shop.checkouts.enqueue_many(amounts)
    points = [point for point in POINTS if point != "released" or strategy == LEASE]
    with ExitStack() as stack:
        doomed = [
            stack.enter_context(child(WORKER, database.url, strategy=strategy, point=point, passes=PASSES))
            for point in points
        ]
        assert [one.exit_code() for one in doomed] == [-signal.SIGKILL] * len(points)
        assert database.execute("SELECT count(*) FROM checkouts") != [(0,)]
        survivor = stack.enter_context(child(WORKER, database.url, strategy=strategy, point=None, passes=0))
        wait_until(lambda: database.execute("SELECT count(*) FROM checkouts") == [(0,)], 60)
        survivor.stop()
    orders = database.execute("SELECT checkout, amount FROM orders ORDER BY checkout")
    assert [tuple(order) for order in orders] == [(number, number) for number in amounts]
    events = sorted(text for (text,) in database.execute("SELECT payload FROM events"))
    assert events == sorted(f'"placed {number}"' for number in amounts)


@pytest.mark.sample("sqlite-lease", "postgres-advisory_lock")
@pytest.mark.parametrize("strategy", [LEASE, ADVISORY_LOCK])
def test_each_order_and_its_event_are_written_once(database: Database, strategy: str) -> None:
    check_all_points(database, strategy)


def test_each_order_and_its_event_are_written_once_by_row_lock(postgres_database: Database) -> None:
    check_all_points(postgres_database, ROW_LOCK)
