"""SQLite's columns hold values of any type, whatever they were declared as."""

from datetime import datetime
from typing import Any
from uuid import UUID

import pytest

from sqlqueue import Broker, column, table
from sqlqueue.testing import ManualClock, drain
from sqlqueue.testing.contract.harness import created, shown
from sqlqueue.testing.contract.tables import RankedJob
from tests.support.database import Database

GOOD = UUID("8f14e45f-ceea-467f-a0e6-0d8b1c2c3d4e")


@table("uuid_jobs")
class UuidJob:
    id: UUID = column.id()
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()
    error: str | None = column.error()


@pytest.mark.parametrize("prefetch", [0, 9])
@pytest.mark.parametrize("id", ["no uuid", b"\x00\xff", 17, 1.5, ""], ids=repr)
def test_a_row_whose_id_cannot_be_read_keeps_no_other_from_being_handled(
    sqlite_database: Database, id: Any, prefetch: int
) -> None:
    """SUITE 101"""
    with Broker(sqlite_database.url) as broker:
        queue = created(broker, UuidJob)
        handled: list[Any] = []
        queue.handler(prefetch=prefetch)(handled.append)
        sqlite_database.execute("INSERT INTO uuid_jobs (id, payload) VALUES (?, '1')", id)
        queue.enqueue(UuidJob(id=GOOD, payload="2"))
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
