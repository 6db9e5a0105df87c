"""The lease at work: rows held while their handlers run, extended, given back, and lost."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.delivery import Delivery
from sqlqueue.errors import DeclarationError
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, Holder, created, shown
from sqlqueue.testing.contract.tables import CountedJob, KeptJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder


class TickingClock(ManualClock):
    """Every reading is a second after the one before; `readings` has them all."""

    def __init__(self) -> None:
        super().__init__()
        self.readings = [super().now()]
        self._ticking = threading.Lock()

    def now(self) -> Any:
        with self._ticking:  # two readings are never one
            self.readings.append(self.readings[-1] + timedelta(seconds=1))
            return self.readings[-1]


class LeaseContract(Contract):
    """A handler holds its row by a lease, for as long as it runs and no longer than its process lives."""

    def test_a_row_in_work_shows_its_lease_and_attempt_to_others_and_no_transaction_holds_it(
        self, database: Database, broker: Broker, clock: ManualClock
    ) -> None:
        """SUITE 19"""
        queue = created(broker, CountedJob, clock)
        seen: list[Any] = []

        @queue.handler
        def look(message: Any) -> None:
            seen.extend(shown(database, queue, "locked_until", "attempt"))
            database.execute("UPDATE counted_jobs SET payload = '2'")  # which would wait for a transaction
            seen.extend(shown(database, queue, "payload"))

        queue.enqueue(1)
        drain(broker)
        assert [(clock.now() + timedelta(seconds=30), 1), ("2",)] == seen

    def test_a_handler_that_outlives_its_lease_runs_once_beside_an_idle_worker_and_its_ack_takes_effect(
        self, database: Database, broker: Broker, clock: ManualClock, recorder: Recorder
    ) -> None:
        """SUITE 21: two and a half leases, by the clock that every claim goes by."""
        queue = created(broker, CountedJob, clock)
        calls = []

        @queue.handler(workers=2, lease=0.1)
        def work(message: Any, delivery: Delivery) -> None:
            calls.append(delivery.attempt)
            for _ in range(5):
                clock.advance(0.05)
                recorder.clear()
                recorder.wait_for("extended", count=2)  # the first may have read the clock before it moved
            calls.append(delivery.lost)

        queue.enqueue("slow")
        drain(broker, recorder)
        assert calls == [1, False]
        assert shown(database, queue, "id") == []

    def test_a_claim_reads_the_clock_once_and_the_turn_that_settles_reads_it_once_more(
        self, database: Database, broker: Broker
    ) -> None:
        """SUITE 22: what is due, whose lease has ended and the new expiry start from one reading."""
        clock = TickingClock()
        queue = created(broker, KeptJob, clock)
        moments = [clock.readings[0] + timedelta(seconds=second) for second in range(1, 120)]
        queue.enqueue_many(  # every other row is held until then rather than hidden
            KeptJob(payload="1", due_at=moment) if second % 2 else KeptJob(payload="1", locked_until=moment)
            for second, moment in enumerate(moments)
        )
        ready_at = {id: due or lease for id, due, lease in shown(database, queue, "id", "due_at", "locked_until")}
        claimed_at = {}

        @queue.handler(workers=1, prefetch=200)
        def work(message: Any, delivery: Delivery) -> None:
            assert delivery.expires is not None
            claimed_at[delivery.id] = delivery.expires - timedelta(seconds=30)

        drain(broker)
        assert claimed_at
        for reading in set(claimed_at.values()):
            assert {id for id, moment in ready_at.items() if moment <= reading} == {
                id for id, at in claimed_at.items() if at <= reading
            }
        done_at = {id: done for id, done in shown(database, queue, "id", "done_at") if done}
        assert claimed_at.keys() == done_at.keys()
        assert {True} == {done_at[id] in clock.readings and done_at[id] > at for id, at in claimed_at.items()}

    def test_a_lease_below_a_second_is_kept_as_it_is(
        self, database: Database, broker: Broker, clock: ManualClock
    ) -> None:
        """SUITE 24"""
        queue = created(broker, CountedJob, clock)
        seen: list[Any] = []
        queue.handler(lease=0.25)(lambda message: seen.extend(shown(database, queue, "locked_until")))
        queue.enqueue("x")
        drain(broker)
        assert [(clock.now() + timedelta(seconds=0.25),)] == seen

    @pytest.mark.parametrize("lease", [0, 0.09, -1, float("inf"), float("nan"), "30"])
    def test_a_lease_below_a_tenth_of_a_second_or_no_number_is_refused(self, broker: Broker, lease: Any) -> None:
        """SUITE 24"""
        with pytest.raises(DeclarationError, match="lease"):
            broker.queue(CountedJob).handler(lease=lease)(lambda message: None)

    def test_the_row_of_a_worker_that_was_lost_is_claimed_when_its_lease_ends_and_the_crash_counts(
        self, broker: Broker, clock: ManualClock
    ) -> None:
        """PAINS 1"""
        queue = created(broker, CountedJob, clock)
        attempts = []

        @queue.handler
        def work(message: Any, delivery: Delivery) -> None:
            attempts.append(delivery.attempt)

        queue.enqueue("x")
        Holder(queue).claim()  # and nothing more is heard of it
        drain(broker)
        assert attempts == []
        clock.advance(30)
        drain(broker)
        assert attempts == [2]
