"""Clocks: *now* is what the table's clock says, wherever the row was written."""

from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest

from sqlqueue import column
from sqlqueue.broker import Broker
from sqlqueue.clock import UTC, DatabaseClock, HostClock
from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.errors import DeclarationError
from sqlqueue.outcome import Retry
from sqlqueue.queue import Queue
from sqlqueue.roles import Role
from sqlqueue.schema import warn_of_skew
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.table import table
from sqlqueue.testing.clock import START, ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, created, shown, stored
from sqlqueue.testing.contract.holding import held_by
from sqlqueue.testing.contract.tables import CountedJob, FullJob, KeptJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder

#: `CountedJob` with a due time that the database fills in for rows that name none.
DUE_NOW = TableSpec(
    name="counted_jobs",
    columns=[
        attrs.evolve(one, optional=one.optional and one.role is not Role.RETRY_AFTER)
        for one in spec_of(CountedJob).columns
    ],
)


@table("timed_jobs", clock=DatabaseClock())
class TimedJob:
    """Rows that the database's clock times. Only producers: how they are held is no matter here."""

    id: int = column.id(generated=True)
    due_at: datetime | None = column.retry_after()
    payload: str = column.payload()


#: The same where each row needs a moment.
TIMED_ALWAYS = TableSpec(
    name="timed_jobs",
    columns=[attrs.evolve(one, optional=False) for one in spec_of(TimedJob).columns],
    clock=DatabaseClock(),
)


def server_time(broker: Broker) -> datetime:
    with broker.pool.connection() as connection:
        return broker.dialect.read_clock(connection)


def moments(database: Database, queue: Queue) -> list[Any]:
    return [due for (due,) in shown(database, queue, "due_at")]


class ClocksContract(Contract):
    """Claims, delays, leases and marks go by the table's clock alone."""

    @pytest.fixture
    def host_without_clock(self, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
        """From here on whoever asks the host's clock for the time fails; the broker has checked its lease by it."""

        def fail(clock: HostClock) -> datetime:
            raise AssertionError("the host's clock was read")

        monkeypatch.setattr(HostClock, "now", fail)

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

    def test_due_rows_and_marks_go_by_the_clock_of_the_table_whatever_holds_a_row(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """SUITE 183: a clock an hour behind the server's, by whose time the row is due."""
        server = server_time(broker)
        clock = ManualClock(server - timedelta(hours=1))
        queue = created(broker, held_by(strategy, KeptJob), clock)
        queue.handler(lambda message: None)
        queue.enqueue("x", at=server)
        drain(broker)
        assert shown(database, queue, "done_at") == [(None,)]
        clock.set(server)
        drain(broker)
        assert [(server,)] == shown(database, queue, "done_at")

    def test_rows_are_claimed_delayed_and_marked_by_the_databases_clock_where_it_is_the_tables(
        self,
        database: Database,
        broker: Broker,
        seated: str,
        recorder: Recorder,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """SUITE 182: the host's clock is years behind, and nobody looks again for an hour but for the row that falls
        due."""
        monkeypatch.setattr(HostClock, "now", lambda clock: datetime(2001, 1, 1, tzinfo=UTC))
        queue = created(broker, attrs.evolve(held_by(seated, KeptJob), clock=DatabaseClock()))
        attempts: list[Any] = []

        @queue.handler
        def work(message: Any, delivery: Delivery) -> Retry | None:
            attempts.append(delivery.attempt)
            return Retry(0.25) if delivery.attempt == 1 else None

        before = server_time(broker)
        queue.enqueue("x", delay=0.25)
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("retried")
            ((due,),) = shown(database, queue, "due_at")
            assert before + timedelta(seconds=0.5) <= due <= server_time(broker) + timedelta(seconds=0.25)
            recorder.wait_for("acknowledged")
        ((done,),) = shown(database, queue, "done_at")
        assert due <= done <= server_time(broker)
        assert attempts == [1, 2]

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

    @pytest.mark.usefixtures("host_without_clock")
    @pytest.mark.parametrize("delay", [0, 90, 0.25, timedelta(days=400)])
    @pytest.mark.parametrize("declared", [TimedJob, TIMED_ALWAYS])
    def test_a_delay_counts_from_the_databases_now_and_the_hosts_clock_is_not_read(
        self, database: Database, broker: Broker, declared: Any, delay: Any
    ) -> None:
        queue = created(broker, declared)
        wait = delay if isinstance(delay, timedelta) else timedelta(seconds=delay)
        before = server_time(broker)
        assert queue.enqueue("x", delay=delay) is not None
        after = server_time(broker)
        (due,) = moments(database, queue)
        assert before + wait <= due <= after + wait

    @pytest.mark.usefixtures("host_without_clock")
    def test_a_delay_in_the_callers_transaction_counts_from_its_enqueue_and_not_from_the_begin(
        self, database: Database, broker: Broker
    ) -> None:
        queue = created(broker, TimedJob)
        ours = database.connect()
        ours.execute("BEGIN")
        ours.execute("SELECT 1")
        before = server_time(broker)
        queue.enqueue("x", delay=90, connection=ours)
        after = server_time(broker)
        assert moments(database, queue) == []
        ours.execute("COMMIT")
        (due,) = moments(database, queue)
        assert before <= due - timedelta(seconds=90) <= after

    @pytest.mark.usefixtures("host_without_clock")
    def test_a_moment_that_is_named_stays_and_no_moment_stays_none(self, database: Database, broker: Broker) -> None:
        queue = created(broker, TimedJob)
        queue.enqueue("x", at=START)
        queue.enqueue(TimedJob(due_at=START, payload="x"))
        queue.enqueue("x")
        queue.enqueue_many([TimedJob(due_at=START, payload="x"), "x"])
        assert moments(database, queue) == [START, START, None, START, None]

    @pytest.mark.usefixtures("host_without_clock")
    def test_a_row_that_needs_a_moment_and_names_none_is_due_now_by_the_database(
        self, database: Database, broker: Broker
    ) -> None:
        queue = created(broker, TIMED_ALWAYS)
        before = server_time(broker)
        queue.enqueue("x")
        queue.enqueue_many(["x", "x"])
        after = server_time(broker)
        queue.enqueue("x", at=START)
        *filled, named = moments(database, queue)
        assert [before <= due <= after for due in filled] == [True] * 3
        assert named == START

    @pytest.mark.usefixtures("host_without_clock")
    def test_many_rows_that_need_a_moment_join_the_callers_transaction_as_it_stands(
        self, database: Database, broker: Broker
    ) -> None:
        queue = created(broker, TIMED_ALWAYS)
        ours = database.connect()
        ours.execute("BEGIN")
        queue.enqueue_many(["x", "y"], connection=ours)
        assert moments(database, queue) == []
        ours.execute("ROLLBACK")
        assert moments(database, queue) == []
        before = server_time(broker)
        ours.execute("BEGIN")
        queue.enqueue("x", connection=ours)
        assert queue.enqueue_many(["y", "z"], connection=ours) == 2
        ours.execute("COMMIT")
        after = server_time(broker)
        assert [before <= due <= after for due in moments(database, queue)] == [True] * 3

    @pytest.mark.usefixtures("host_without_clock")
    @pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), 1e12, timedelta.max, "soon", True])
    def test_a_delay_that_is_none_is_refused_before_the_database_is_touched(self, broker: Broker, delay: Any) -> None:
        with pytest.raises(ValueError, match=r"^delay is "):
            broker.queue(TimedJob).enqueue("x", delay=delay)  # there is no table yet

    @pytest.mark.usefixtures("host_without_clock")
    def test_a_table_on_the_databases_clock_has_none_to_compare_it_with(
        self, broker: Broker, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue = created(broker, TimedJob)
        with broker.pool.connection() as connection:
            warn_of_skew(broker.dialect, connection, queue.spec, 0.0)
            assert caplog.messages == []
            warn_of_skew(broker.dialect, connection, attrs.evolve(queue.spec, clock=ManualClock()), 30.0)
        assert ["the host's clock" in message for message in caplog.messages] == [True]
