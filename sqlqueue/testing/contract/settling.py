"""Settling: where a row goes by what its handler did."""

import logging
from datetime import timedelta
from time import monotonic
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer, Stopped
from sqlqueue.delivery import Delivery
from sqlqueue.outcome import DeadLetter, Drop, Outcome, Retry
from sqlqueue.roles import Role
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, OpenBroker, created, shown, stored
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, ROW_LOCK, Stranger, check_unheld, held_by
from sqlqueue.testing.contract.tables import CountedJob, FullJob, Job, KeptJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder


class SettlingContract(Contract):
    """An outcome takes its row out of work in one statement, and to one place."""

    @pytest.mark.parametrize("outcome", [None, Drop("not wanted")], ids=["ack", "drop"])
    def test_a_finished_row_is_gone_where_no_column_keeps_the_time(
        self, database: Database, broker: Broker, strategy: str, outcome: Outcome
    ) -> None:
        """SUITE 79"""
        queue = created(broker, held_by(strategy, Job))
        queue.handler(lambda message: outcome)
        queue.enqueue("x")
        drain(broker)
        assert shown(database, queue, "id") == []

    @pytest.mark.parametrize("outcome", [None, Drop("not wanted")], ids=["ack", "drop"])
    def test_a_finished_row_stays_with_the_time_where_a_column_keeps_it(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        stranger: Stranger,
        clock: ManualClock,
        outcome: Outcome,
    ) -> None:
        """SUITE 79"""
        queue = created(broker, held_by(strategy, FullJob), clock, group="mail")
        queue.handler(lambda message: outcome)
        queue.enqueue("x")
        drain(broker)
        assert [(clock.now(), 1, None, False)] == shown(database, queue, "done_at", "attempt", "error", "is_running")
        check_unheld(database, queue, stranger)
        assert Stopped(settled=0, given_back=0, abandoned=0) == drain(broker)

    def test_a_row_in_work_says_that_it_is_running(self, database: Database, broker: Broker, strategy: str) -> None:
        """Where anybody could see it: a row lock's transaction is open."""
        queue = created(broker, held_by(strategy, FullJob), group="mail")
        seen: list[Any] = []
        queue.handler(lambda message: seen.extend(shown(database, queue, "is_running")))
        queue.enqueue("x")
        drain(broker)
        assert [(strategy != ROW_LOCK,)] == seen  # nobody reads what a row lock's transaction has not committed

    def test_a_retry_at_once_is_due_at_once_free_and_counted_once(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        """SUITE 81"""
        queue = created(broker, held_by(strategy, CountedJob), clock)
        attempts = []

        @queue.handler
        def work(message: Any, delivery: Delivery) -> Retry | None:
            attempts.append(delivery.attempt)
            return Retry() if message == "again" and delivery.attempt == 1 else None

        queue.enqueue("again")
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("retried")
            clock.advance(1)
            recorder.wait_for("acknowledged")
        assert attempts == [1, 2]
        assert shown(database, queue, "id") == []

    def test_a_delayed_retry_waits_in_the_table_and_comes_back_when_it_is_due(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        stranger: Stranger,
        clock: ManualClock,
        recorder: Recorder,
    ) -> None:
        """SUITE 82"""
        queue = created(broker, held_by(strategy, CountedJob), clock)
        attempts = []

        @queue.handler
        def work(message: Any, delivery: Delivery) -> Retry | None:
            attempts.append(delivery.attempt)
            return Retry(timedelta(milliseconds=300)) if delivery.attempt == 1 else None

        queue.enqueue("x")
        due = clock.now() + timedelta(milliseconds=300)
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("retried")
            assert [(due, 1)] == shown(database, queue, "due_at", "attempt")
            check_unheld(database, queue, stranger)
            clock.advance(0.299)
            clock.advance(0.001)
            recorder.wait_for("acknowledged")
        assert attempts == [1, 2]

    def test_without_a_column_for_it_the_lease_hides_a_delayed_retry(
        self, database: Database, broker: Broker, clock: ManualClock
    ) -> None:
        """SUITE 83"""
        queue = created(broker, Job, clock)
        outcomes: list[Outcome] = [Retry(60), None]
        queue.handler(lambda message: outcomes.pop(0))
        queue.enqueue("x")
        due = clock.now() + timedelta(seconds=60)
        drain(broker)
        assert [(due,)] == shown(database, queue, "locked_until")
        clock.advance(59.9)
        drain(broker)
        assert [(due,)] == shown(database, queue, "locked_until")
        clock.advance(0.1)
        drain(broker)
        assert shown(database, queue, "id") == []

    def test_without_a_column_for_it_a_delayed_retry_is_due_at_once_and_claims_pause_instead(
        self,
        database: Database,
        open_broker: OpenBroker,
        seated: str,
        recorder: Recorder,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """SUITE 83: told once. The pause is as long as a poll interval at most."""
        broker = open_broker(poll_interval=0.3)
        queue = created(broker, held_by(seated, Job))
        begun: list[float] = []

        @queue.handler
        def work(message: Any) -> Retry | None:
            begun.append(monotonic())
            return Retry(60) if len(begun) < 3 else None

        queue.enqueue("x")
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("retried")
            assert shown(database, queue, "id") != []
            queue.enqueue("y")  # which wakes nobody before the pause is over
            recorder.wait_for("acknowledged", count=2)
        first, second, third, _ = begun
        assert (second - first >= 0.3, third - second >= 0.3) == (True, True)
        assert [line for line in caplog.messages if "nothing to hide it by" in line] == [
            "queue jobs: a row asked to wait, and the table has nothing to hide it by: it is due at once, and "
            "claims pause for up to a poll interval instead; add a column "
            "(due_at: datetime | None = column.retry_after())"
        ]

    @pytest.mark.parametrize(
        "outcome", [Retry(), Retry(0.5), RuntimeError("broken")], ids=["retry", "later", "failure"]
    )
    def test_a_row_that_is_never_done_is_handled_as_often_as_its_cap_and_then_parked(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock, outcome: Exception
    ) -> None:
        """SUITE 84, SUITE 88: a retry that was asked for counts as well."""
        queue = created(broker, held_by(strategy, KeptJob), clock)
        attempts = []

        @queue.handler(max_attempts=3, retry=0.5)
        def work(message: Any, delivery: Delivery) -> None:
            attempts.append(delivery.attempt)
            raise outcome

        queue.enqueue("x")
        for _ in range(5):
            drain(broker)
            clock.advance(1)
        assert attempts == [1, 2, 3]
        ((error, *row),) = shown(database, queue, "error", "attempt", "done_at")
        assert row == [5 if strategy == ADVISORY_LOCK else 3, None]  # two more tell it from a lost worker's
        assert ("RuntimeError: broken" if isinstance(outcome, RuntimeError) else "retry") in error

    def test_a_spent_row_is_dropped_with_an_error_in_the_log_where_there_is_no_place_to_park_it(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        """SUITE 88"""
        queue = created(broker, held_by(strategy, CountedJob), clock)

        @queue.handler(max_attempts=1)
        def work(message: Any) -> None:
            raise RuntimeError("broken")

        id = queue.enqueue("x")
        with caplog.at_level(logging.ERROR, "sqlqueue"):
            drain(broker)
        assert shown(database, queue, "id") == []
        (line,) = [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()]
        assert (f"row {id}" in line, "counted_jobs" in line, "RuntimeError: broken" in line) == (True, True, True)

    def test_a_row_at_its_cap_when_it_is_claimed_is_spent_and_its_handler_does_not_run(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger, clock: ManualClock
    ) -> None:
        """SUITE e, PAINS 4: its last worker was lost, and the error says so. A row lock cannot count those: there it is
        a row whose error was cleared."""
        queue = created(broker, held_by(strategy, KeptJob), clock)
        attempts: list[Any] = []

        @queue.handler(max_attempts=2)
        def work(message: Any, delivery: Delivery) -> None:
            attempts.append(delivery.attempt)

        id = queue.enqueue("x")
        # With an advisory lock also where the next worker was lost before the row was parked.
        spent = {LEASE: 2, ROW_LOCK: 2, ADVISORY_LOCK: 3}[strategy]
        database.execute("UPDATE kept_jobs SET attempt = ? WHERE id = ?", spent, id)
        if strategy == LEASE:
            lease = stored(queue, Role.LEASE, clock.now())
            database.execute("UPDATE kept_jobs SET locked_until = ? WHERE id = ?", lease, id)
        drain(broker)
        check_unheld(database, queue, stranger)
        ((error, done_at),) = shown(database, queue, "error", "done_at")
        if strategy == ROW_LOCK:
            assert (attempts, error, done_at) == ([1], None, clock.now())
        else:
            assert (attempts, error, done_at) == ([], "the worker was lost in the last of 2 attempts", None)

    def test_a_parked_row_whose_error_is_cleared_starts_a_fresh_count(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob), clock)
        attempts = []

        @queue.handler(max_attempts=2, retry=0.5)
        def work(message: Any, delivery: Delivery) -> None:
            attempts.append(delivery.attempt)
            raise RuntimeError("broken")

        queue.enqueue("x")
        for _ in range(3):
            drain(broker)
            clock.advance(1)
        assert attempts == [1, 2]
        database.execute("UPDATE kept_jobs SET error = NULL")
        for _ in range(3):
            drain(broker)
            clock.advance(1)
        assert attempts == [1, 2, 1, 2]

    @pytest.mark.parametrize("raised", [True, False])
    def test_a_dead_letter_parks_the_row_with_its_reason(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger, clock: ManualClock, raised: bool
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob), clock)

        @queue.handler
        def work(message: Any) -> Outcome:
            if raised:
                raise DeadLetter("no such customer")
            return DeadLetter("no such customer")

        queue.enqueue("x")
        drain(broker)
        assert shown(database, queue, "error", "attempt") == [("no such customer", 1)]
        check_unheld(database, queue, stranger)

    def test_a_failure_comes_back_by_its_policy_counted_and_held_by_nobody(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger, clock: ManualClock
    ) -> None:
        """SUITE 93"""
        queue = created(broker, held_by(strategy, CountedJob), clock)

        @queue.handler(retry=lambda attempt, error: 10 * attempt)
        def work(message: Any, delivery: Delivery) -> None:
            if delivery.attempt != 3:
                raise RuntimeError("broken")

        queue.enqueue("x")
        for attempt in (1, 2):
            drain(broker)
            due = clock.now() + timedelta(seconds=10 * attempt)
            assert [(due, attempt)] == shown(database, queue, "due_at", "attempt")
            check_unheld(database, queue, stranger)
            database.execute("UPDATE counted_jobs SET payload = payload")  # which would wait for a transaction
            clock.set(due)
        drain(broker)
        assert shown(database, queue, "id") == []
