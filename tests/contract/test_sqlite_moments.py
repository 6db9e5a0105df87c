"""Moments that other programs wrote as text of their own, on SQLite."""

from datetime import timedelta
from typing import Any

import pytest

from sqlqueue import Broker, Consumer
from sqlqueue.testing import ManualClock, Recorder, drain
from sqlqueue.testing.clock import START
from sqlqueue.testing.contract.harness import created
from sqlqueue.testing.contract.tables import CountedJob
from tests.support.database import Database

NOON = START + timedelta(hours=12)
MICROSECOND = timedelta(microseconds=1)

#: The moment `NOON`, in the spellings that programs write.
SPELLINGS = [
    "2030-01-01 12:00:00",
    "2030-01-01 12:00:00.000",
    "2030-01-01 12:00:00.000000",
    "2030-01-01 12:00:00.000000000",
    "2030-01-01T12:00:00",
    "2030-01-01T12:00:00Z",
    "2030-01-01T12:00:00.000Z",
    "2030-01-01T12:00:00.000000+00:00",
    "2030-01-01T14:00:00+02:00",
    "2030-01-02T01:00:00+13:00",
    "2030-01-01T02:30:00-09:30",
    "2029-12-31T24:00:00-12:00",
    "2030-01-01 02:00:00-10:00",
]


@pytest.mark.parametrize("field", ["due_at", "locked_until"])
@pytest.mark.parametrize("text", SPELLINGS)
def test_a_row_is_claimed_at_its_moment_and_not_before_whoever_spelled_it(
    sqlite_database: Database, field: str, text: str
) -> None:
    """SUITE 29: within a microsecond, for digits past it sort after it."""
    clock = ManualClock(NOON - timedelta(milliseconds=1))
    with Broker(sqlite_database.url) as broker:
        queue = created(broker, CountedJob, clock)
        handled: list[Any] = []
        queue.handler(handled.append)
        sqlite_database.execute(f"INSERT INTO counted_jobs (payload, {field}) VALUES ('1', ?)", text)
        drain(broker)
        assert handled == []
        clock.set(NOON + MICROSECOND)
        drain(broker)
        assert handled == [1]


@pytest.mark.parametrize("text", SPELLINGS)
def test_an_idle_consumer_knows_when_a_row_falls_due_whoever_spelled_it(sqlite_database: Database, text: str) -> None:
    """SUITE 29"""
    clock, recorder = ManualClock(NOON - timedelta(milliseconds=20)), Recorder()
    with Broker(sqlite_database.url, poll_interval=3600) as broker:
        queue = created(broker, CountedJob, clock)
        handled: list[Any] = []
        queue.handler(handled.append)
        sqlite_database.execute("INSERT INTO counted_jobs (payload, due_at) VALUES ('1', ?)", text)
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("looked")
            assert handled == []
            clock.set(NOON + MICROSECOND)
            recorder.wait_for("acknowledged")
        assert handled == [1]


def test_texts_with_any_number_of_digits_sort_as_instants_to_the_microsecond(sqlite_database: Database) -> None:
    """SUITE 28"""
    texts = ["12:00:00", "12:00:00.000001", "12:00:00.5", "12:00:00.500", "12:00:00.500001", "12:00:00.500001500"]
    clock = ManualClock(NOON - MICROSECOND)
    with Broker(sqlite_database.url) as broker:
        queue = created(broker, CountedJob, clock)
        handled: list[Any] = []
        queue.handler(handled.append)
        for number in reversed(range(len(texts))):
            text = f"2030-01-01 {texts[number]}"
            sqlite_database.execute("INSERT INTO counted_jobs (payload, due_at) VALUES (?, ?)", str(number), text)
        seen = []
        for microseconds in (-1, 0, 1, 499_999, 500_000, 500_001, 500_002):
            clock.set(NOON + microseconds * MICROSECOND)
            drain(broker)
            seen.append(sorted(handled))
        assert seen == [[], [0], [0, 1], [0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]]
