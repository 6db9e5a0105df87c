"""What operators see and do: FIFO lines that are held up, and rows that are skipped."""

from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest

from sqlqueue import column
from sqlqueue.broker import Broker
from sqlqueue.delivery import Delivery
from sqlqueue.errors import DeclarationError
from sqlqueue.inspect import SKIPPED, BlockedKey
from sqlqueue.outcome import Retry
from sqlqueue.queue import Queue
from sqlqueue.roles import Role
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.strategies.fifo import MOST_SEEN
from sqlqueue.table import table
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, created, shown
from sqlqueue.testing.contract.tables import Job
from sqlqueue.testing.drain import drain


@table("line_jobs")
class LineJob:
    id: int = column.id(generated=True)
    account: str | None = column.partition_key(fifo=True)
    due_at: datetime | None = column.retry_after()
    attempt: int = column.attempt()
    locked_until: datetime | None = column.lease()
    error: str | None = column.error()
    payload: str = column.payload()


def by(strategy: str, *without: Role) -> TableSpec:
    """The table as `strategy` holds its rows, without the columns that play these roles."""
    left = {*without, *([] if strategy == "lease" else [Role.LEASE])}
    spec = spec_of(LineJob)
    return attrs.evolve(spec, row_class=None, columns=[one for one in spec.columns if one.role not in left])


class BlockedContract(Contract):
    """Lines that wait for a failed or scheduled row are listed, and go on when it is skipped."""

    held_by = "lease"

    @pytest.fixture
    def queue(self, broker: Broker, clock: ManualClock) -> Queue:
        return created(broker, by(self.held_by), clock)

    def test_the_keys_that_wait_for_their_front_are_listed_with_it_and_no_others(
        self, broker: Broker, clock: ManualClock, queue: Queue
    ) -> None:
        handled: list[Any] = []

        @queue.handler
        def work(message: Any, delivery: Delivery) -> Any:
            handled.append((delivery.key, message))
            return Retry(60) if message == "fails" else None

        failed = queue.enqueue("fails", key="b")
        queue.enqueue("behind", key="b")
        queue.enqueue("works", key="a")
        scheduled = queue.enqueue("scheduled", key="c", delay=90)
        queue.enqueue("behind", key="c")
        drain(broker)
        now = clock.now()
        assert queue.blocked_keys() == [
            BlockedKey(key="b", id=failed, attempt=1, until=now + timedelta(seconds=60)),
            BlockedKey(key="c", id=scheduled, attempt=0, until=now + timedelta(seconds=90)),
        ]
        assert handled == [("a", "works"), ("b", "fails")]
        clock.advance(60)
        assert [one.key for one in queue.blocked_keys()] == ["c"]

    def test_a_front_that_is_skipped_is_parked_and_those_behind_it_run(
        self, broker: Broker, database: Database, clock: ManualClock, queue: Queue
    ) -> None:
        handled: list[Any] = []

        @queue.handler
        def work(message: Any) -> Any:
            handled.append(message)
            return Retry(60) if message == "fails" else None

        failed = queue.enqueue("fails", key="b")
        queue.enqueue("behind", key="b")
        drain(broker)
        assert (queue.skip(failed), queue.skip(failed), queue.blocked_keys()) == (True, False, [])
        drain(broker)
        assert handled == ["fails", "behind"]
        assert shown(database, queue, "id", "attempt", "error") == [(failed, 1, SKIPPED)]

    def test_a_row_in_work_is_not_skipped(self, broker: Broker, clock: ManualClock, queue: Queue) -> None:
        skipped: list[bool] = []

        @queue.handler
        def work(message: Any, delivery: Delivery) -> None:
            skipped.append(queue.skip(delivery.id))
            assert queue.blocked_keys() == []

        queue.enqueue("x", key="a")
        drain(broker)
        assert skipped == [False]

    def test_without_an_error_column_a_skipped_row_goes(
        self, broker: Broker, database: Database, clock: ManualClock
    ) -> None:
        queue = created(broker, by(self.held_by, Role.ERROR), clock)
        assert queue.skip(queue.enqueue("x", key="a", delay=60))
        assert shown(database, queue, "id") == []

    def test_a_skip_in_the_callers_transaction_ends_with_it(
        self, broker: Broker, database: Database, clock: ManualClock, queue: Queue
    ) -> None:
        row = queue.enqueue("x", key="a", delay=60)
        person = database.connect()
        person.execute("BEGIN")
        assert queue.skip(row, connection=person)
        person.execute("ROLLBACK")
        assert [one.id for one in queue.blocked_keys()] == [row]

    def test_more_keys_than_one_walk_sees_are_all_listed(self, broker: Broker, clock: ManualClock) -> None:
        queue = created(broker, LineJob, clock)
        due = clock.now() + timedelta(hours=1)
        keys = [f"k{number:05}" for number in range(MOST_SEEN + 7)]
        queue.enqueue_many(LineJob(account=key, payload="1", due_at=due) for key in [*keys, None])
        assert [one.key for one in queue.blocked_keys()] == keys

    def test_what_has_no_lines_has_no_blocked_keys(self, broker: Broker) -> None:
        with pytest.raises(DeclarationError, match=r"'jobs' has no FIFO lines.*fifo=True"):
            created(broker, Job).blocked_keys()

    def test_rows_that_are_held_by_advisory_locks_are_not_skipped(self, broker: Broker) -> None:
        spec = spec_of(Job)
        columns = [one for one in spec.columns if one.role is not Role.LEASE]
        queue = created(broker, attrs.evolve(spec, row_class=None, columns=columns, advisory_lock="jobs-{id}"))
        with pytest.raises(DeclarationError, match=r"'jobs'.*none can be skipped"):
            queue.skip(1)


class RowLockBlockedContract(BlockedContract):
    """The same for rows that a row lock holds: for dialects whose capabilities say `row_locks`."""

    held_by = "row lock"
