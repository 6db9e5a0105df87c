"""Two relays are killed at random: every event arrives, each order's in the order in which they were written."""

import random
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from sqlqueue import Broker, Queue
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, ROW_LOCK
from tests.consumer.helpers import wait_until
from tests.crash.outbox import bus_on, events_by
from tests.support.children import Child, child
from tests.support.database import Database, sqlite_file

WORKER = "tests.crash.programs.relay_worker"
ORDERS, EVENTS, IN_ONE_TRANSACTION, WORKERS, KILLS = 100, 2000, 25, 4, 4
LIMIT = 60.0  # seconds

SIZES = pytest.mark.parametrize("batch", [None, 20], ids=["singly", "batches"])


def write(queue: Queue, service: Any) -> None:
    """All events by another program, and between them transactions that are rolled back."""
    for first in range(0, EVENTS, IN_ONE_TRANSACTION):
        for ending in ("ROLLBACK", "COMMIT"):
            service.execute("BEGIN")
            for number in range(first, first + IN_ONE_TRANSACTION):
                told = number if ending == "COMMIT" else -1
                queue.enqueue(told, key=f"order-{number % ORDERS}", connection=service)
            service.execute(ending)


def check(database: Database, path: Path, strategy: str, batch: int | None) -> None:
    target = sqlite_file(path / "target.db")
    with Broker(database.url) as broker, Broker(target.url) as there, ExitStack() as until_end:
        events = broker.queue(events_by(strategy))
        bus_on(there)
        for one in (broker, there):
            one.create_tables()

        def begin() -> Child:
            return until_end.enter_context(
                child(WORKER, database.url, target=target.url, strategy=strategy, workers=WORKERS, batch=batch)
            )

        relays = [begin(), begin()]
        for relay in relays:
            relay.wait_for("looked")
        write(events, database.connect())
        for due in sorted(random.sample(range(100, EVENTS - 200), KILLS)):
            wait_until(lambda due=due: arrived(target) >= due, LIMIT)  # type: ignore[misc]
            victim = relays.pop(random.randrange(2))
            victim.signal(signal.SIGKILL)
            assert victim.exit_code() == -signal.SIGKILL
            relays.append(begin())
        wait_until(lambda: database.execute(f"SELECT count(*) FROM {events.name}") == [(0,)], LIMIT)
        for relay in relays:
            relay.stop()
    check_arrived(target.execute("SELECT message, account, payload FROM arrived ORDER BY id"), WORKERS * (batch or 1))


def arrived(target: Database) -> int:
    ((count,),) = target.execute("SELECT count(*) FROM arrived")
    return int(count)


def check_arrived(rows: Sequence[tuple[Any, ...]], in_work: int) -> None:
    """`in_work`: events that a relay may have had in work when it was killed."""
    told: dict[str, list[int]] = {}
    for _, key, payload in rows:
        told.setdefault(key, []).append(int(payload))
    written = {f"order-{order}": list(range(order, EVENTS, ORDERS)) for order in range(ORDERS)}
    assert {key: list(once(numbers)) for key, numbers in told.items()} == written
    assert len({(message, payload) for message, _, payload in rows}) == EVENTS  # an event keeps its id
    again = sum(times - 1 for times in Counter(message for message, _, _ in rows).values())
    assert again <= KILLS * in_work


def once(numbers: Sequence[int]) -> Iterator[int]:
    """Without those that came again at once."""
    return (number for number, _ in groupby(numbers))


@pytest.mark.sample("postgres-lease-batches", "sqlite-advisory_lock-batches")
@SIZES
@pytest.mark.parametrize("strategy", [LEASE, ADVISORY_LOCK])
def test_every_event_arrives_in_order_and_again_only_after_a_kill(
    database: Database, tmp_path: Path, strategy: str, batch: int | None
) -> None:
    """PAINS 1 27"""
    check(database, tmp_path, strategy, batch)


@pytest.mark.sample("postgres-singly")
@SIZES
def test_every_event_arrives_in_order_and_again_only_after_a_kill_by_row_lock(
    postgres_database: Database, tmp_path: Path, batch: int | None
) -> None:
    """PAINS 1 27"""
    check(postgres_database, tmp_path, ROW_LOCK, batch)
