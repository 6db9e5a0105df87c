"""SQLite's columns hold values of any type, whatever they were declared as."""

from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from sqlqueue import Broker, Delivery, column, table
from sqlqueue.testing import ManualClock, drain
from sqlqueue.testing.contract.harness import created, shown
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, held_by
from sqlqueue.testing.contract.tables import CountedJob, RankedJob
from tests.support.database import Database

GOOD = UUID("8f14e45f-ceea-467f-a0e6-0d8b1c2c3d4e")


@table("uuid_jobs")
class UuidJob:
    id: UUID = column.id()
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()
    error: str | None = column.error()


@pytest.mark.parametrize("strategy", [LEASE, ADVISORY_LOCK])
@pytest.mark.parametrize("prefetch", [0, 9])
@pytest.mark.parametrize("id", ["no uuid", b"\x00\xff", 17, 1.5, ""], ids=repr)
def test_a_row_whose_id_cannot_be_read_keeps_no_other_from_being_handled(
    sqlite_database: Database, id: Any, prefetch: int, strategy: str
) -> None:
    """SUITE 101"""
    with Broker(sqlite_database.url) as broker:
        queue = created(broker, held_by(strategy, UuidJob))
        handled: list[Any] = []
        queue.handler(prefetch=prefetch)(handled.append)
        sqlite_database.execute("INSERT INTO uuid_jobs (id, payload) VALUES (?, '1')", id)
        sqlite_database.execute("INSERT INTO uuid_jobs (id, payload) VALUES (?, '2')", str(GOOD))
        drain(broker)
        assert handled == [2]
        ((error,),) = sqlite_database.execute("SELECT error FROM uuid_jobs")
        assert "'id'" in error


@pytest.mark.parametrize("prefetch", [0, 9])
@pytest.mark.parametrize("field", ["priority", "due_at", "locked_until"])
@pytest.mark.parametrize("value", ["odd", b"odd"], ids=repr)
def test_a_row_with_an_odd_value_in_a_role_keeps_no_other_from_being_handled(
    sqlite_database: Database, field: str, value: Any, prefetch: int
) -> None:
    """SUITE 101, for the other columns that a claim reads or sorts by."""
    with Broker(sqlite_database.url) as broker:
        queue = created(broker, RankedJob, ManualClock())
        handled: list[Any] = []
        queue.handler(prefetch=prefetch)(handled.append)
        for number in range(3):
            queue.enqueue(number)
        sqlite_database.execute(f"UPDATE ranked_jobs SET {field} = ? WHERE payload = '1'", value)
        drain(broker)
        assert {0, 2} <= set(handled)
        assert {payload for (payload,) in shown(sqlite_database, queue, "payload")} <= {"1"}


@pytest.mark.parametrize("strategy", [LEASE, ADVISORY_LOCK])
@pytest.mark.parametrize(("count", "begun"), [("odd", 1), (b"odd", 1), (-5, -4), (1.5, 2)], ids=repr)
def test_a_count_that_cannot_be_read_counts_as_none_and_the_row_reaches_its_cap(
    sqlite_database: Database, count: Any, begun: int, strategy: str
) -> None:
    """SUITE 99"""
    with Broker(sqlite_database.url) as broker:
        queue = created(broker, held_by(strategy, CountedJob), clock := ManualClock())
        attempts: list[Any] = []

        @queue.handler(max_attempts=3, retry=0)
        def work(message: Any, delivery: Delivery) -> None:
            attempts.append(delivery.attempt)
            raise RuntimeError("broken")

        queue.enqueue("x")
        sqlite_database.execute("UPDATE counted_jobs SET attempt = ?", count)
        for _ in range(10):
            drain(broker)
            clock.advance(1)
        assert attempts == list(range(begun, 4))


@table("typed_rows")
class TypedRow:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    name: str = "x"
    number: int = 1
    ratio: float = 1.0
    error: str | None = column.error()


@pytest.mark.parametrize(
    ("field", "value"), [("name", b"\x00\xff"), ("number", "abc"), ("number", 2.5), ("ratio", "1,5")]
)
def test_a_value_of_another_type_than_the_declared_one_goes_by_the_decode_policy(
    sqlite_database: Database, field: str, value: Any
) -> None:
    with Broker(sqlite_database.url) as broker:
        queue = created(broker, TypedRow)
        handled: list[Any] = []
        queue.handler(handled.append)
        queue.enqueue_many([TypedRow(), TypedRow()])
        sqlite_database.execute(f"UPDATE typed_rows SET {field} = ? WHERE id = 1", value)
        drain(broker)
        assert [row.id for row in handled] == [2]
        ((error,),) = sqlite_database.execute("SELECT error FROM typed_rows")
        assert error.startswith(
            f"sqlqueue.errors.DecodeError: column {field!r} holds {value!r}, which cannot be read: "
        )
