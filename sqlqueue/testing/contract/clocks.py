"""Clocks: *now* is what the table's clock says, wherever the row was written."""

from datetime import timedelta
from typing import Any

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.clock import DatabaseClock
from sqlqueue.column import Role
from sqlqueue.errors import DeclarationError
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, created, shown, stored
from sqlqueue.testing.contract.tables import CountedJob, FullJob
from sqlqueue.testing.drain import drain

#: `CountedJob` with a due time that the database fills in for rows that name none.
DUE_NOW = TableSpec(
    name="counted_jobs",
    columns=[
        attrs.evolve(one, optional=one.optional and one.role is not Role.RETRY_AFTER)
        for one in spec_of(CountedJob).columns
    ],
)


class ClocksContract(Contract):
    """Claims, delays, leases and marks go by the table's clock alone."""

    def test_a_row_that_is_due_by_the_database_alone_waits_for_the_clock_of_the_table(
        self, database: Database, broker: Broker
    ) -> None:
        """SUITE 183, SUITE f: a row written now by the server's clock starts as late as the host's clock is behind."""
        with broker.pool.connection() as connection:
            server = broker.dialect.read_clock(connection)
        clock = ManualClock(server - timedelta(hours=1))
        queue = created(broker, DUE_NOW, clock)
        handled: list[Any] = []
        queue.handler(handled.append)
        database.execute("INSERT INTO counted_jobs (payload) VALUES ('1')")
        ((due,),) = shown(database, queue, "due_at")
        assert timedelta(0) <= due - server < timedelta(minutes=1)
        drain(broker)
        assert handled == []
        clock.set(due - timedelta(milliseconds=1))
        drain(broker)
        assert handled == []
        clock.set(due)
        drain(broker)
        assert handled == [1]

    def test_a_lease_goes_by_the_clock_of_the_table_and_not_by_the_database(
        self, database: Database, broker: Broker, clock: ManualClock
    ) -> None:
        """SUITE 183"""
        queue = created(broker, CountedJob, clock)
        handled: list[Any] = []
        queue.handler(handled.append)
        id = queue.enqueue("x")
        lease = stored(queue, Role.LEASE, clock.now() + timedelta(seconds=1))
        database.execute("UPDATE counted_jobs SET locked_until = ? WHERE id = ?", lease, id)
        drain(broker)
        assert handled == []
        clock.advance(1)
        drain(broker)
        assert handled == ["x"]

    def test_delays_and_marks_are_written_by_the_clock_of_the_table(
        self, database: Database, broker: Broker, clock: ManualClock
    ) -> None:
        queue = created(broker, FullJob, clock, group="mail")
        queue.handler(lambda message: None)
        queue.enqueue("x", delay=90)
        due = clock.now() + timedelta(seconds=90)
        assert [(due,)] == shown(database, queue, "due_at")
        clock.set(due)
        drain(broker)
        assert [(due,)] == shown(database, queue, "done_at")

    def test_a_clock_set_back_hides_nothing_for_good(
        self, database: Database, broker: Broker, clock: ManualClock
    ) -> None:
        """A row enqueued before the step back is handled once the clock has caught up."""
        queue = created(broker, CountedJob, clock)
        handled: list[Any] = []
        queue.handler(handled.append)
        due = clock.now()
        queue.enqueue("x", at=due)
        clock.advance(-3600)
        drain(broker)
        assert handled == []
        clock.set(due)
        drain(broker)
        assert handled == ["x"]

    def test_a_lease_beside_the_clock_of_the_database_is_refused_at_its_declaration(self) -> None:
        """SUITE 184"""
        spec = spec_of(CountedJob)
        with pytest.raises(DeclarationError, match="lease"):
            TableSpec(name=spec.name, columns=spec.columns, clock=DatabaseClock())
