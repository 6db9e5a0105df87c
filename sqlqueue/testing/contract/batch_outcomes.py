"""What becomes of a batch's rows: each goes by its own outcome, also where others of them cannot be settled."""

import threading
from datetime import timedelta
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer, Stopped
from sqlqueue.delivery import Delivery
from sqlqueue.outcome import DeadLetter, Drop, Retry
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import LIMIT, Contract, Database, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import Stranger, check_unheld, held_by
from sqlqueue.testing.contract.tables import CountedJob, KeptJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder

#: Of each text one row can be finished.
REFUSE = "CREATE UNIQUE INDEX finished_once ON kept_jobs (payload) WHERE done_at IS NOT NULL"


class BatchOutcomesContract(Contract):
    """Nothing of a batch is half settled, and none of its rows keeps another."""

    def test_each_row_of_a_batch_is_settled_by_its_own_outcome(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock, recorder: Recorder
    ) -> None:
        """SUITE 69"""
        queue = created(broker, held_by(strategy, KeptJob), clock)
        outcomes = [None, Retry(60), Drop("old"), DeadLetter("nobody"), RuntimeError("broken")]

        @queue.handler(batch=10, retry=30)
        def work(messages: list[int]) -> Any:
            return outcomes

        queue.enqueue_many(range(5))
        drain(broker, recorder)
        now = clock.now()
        assert shown(database, queue, "done_at", "due_at", "error", "attempt") == [
            (now, None, None, 1),
            (None, now + timedelta(seconds=60), None, 1),
            (now, None, None, 1),
            (None, None, "nobody", 1),
            (None, now + timedelta(seconds=30), None, 1),
        ]
        kinds = ("acknowledged", "retried", "dropped", "parked", "retried")
        assert sorted(kinds) == sorted(event.kind for event in recorder.of(*kinds))

    @pytest.mark.parametrize(
        ("raised", "settled"),
        [
            (RuntimeError("broken"), (None, 30, None)),
            (Retry(60), (None, 60, None)),
            (Drop(), (0, None, None)),
            (DeadLetter("nobody"), (None, None, "nobody")),
        ],
        ids=["failure", "retry", "drop", "dead letter"],
    )
    def test_what_a_handler_raises_counts_for_all_rows_of_its_batch(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock, raised: Exception, settled: Any
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob), clock)

        @queue.handler(batch=3, retry=30)
        def work(messages: list[int]) -> None:
            raise raised

        queue.enqueue_many(range(3))
        drain(broker)
        done, due, error = settled
        now = clock.now()
        expected = (
            None if done is None else now,
            None if due is None else now + timedelta(seconds=due),
            error,
        )
        assert [expected] * 3 == shown(database, queue, "done_at", "due_at", "error")

    @pytest.mark.parametrize(
        ("returned", "said"),
        [
            ([None], "the handler returned 1 outcomes for its batch of 2 rows"),
            ([None] * 3, "the handler returned 3 outcomes for its batch of 2 rows"),
            ([], "the handler returned 0 outcomes for its batch of 2 rows"),
            (Retry(), "the handler returned Retry(after=None) for its batch of 2 rows"),
            ("ok", "the handler returned 'ok' for its batch of 2 rows"),
        ],
    )
    def test_a_handler_that_does_not_say_what_becomes_of_each_row_has_failed_on_all_of_them(
        self, database: Database, broker: Broker, strategy: str, returned: Any, said: str
    ) -> None:
        """SUITE d"""
        queue = created(broker, held_by(strategy, KeptJob))
        queue.handler(batch=4, retry=None)(lambda messages: returned)
        queue.enqueue_many(range(2))
        drain(broker)
        errors = shown(database, queue, "error", "done_at")
        assert [(f"ValueError: {said}", None)] * 2 == [(error.partition(";")[0], at) for error, at in errors]

    def test_a_row_whose_ack_is_refused_goes_by_its_policy_and_the_others_are_done(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger, clock: ManualClock
    ) -> None:
        """SUITE 71, SUITE 72: the handler is called once, although a row lock's transaction is rolled back."""
        queue = created(broker, held_by(strategy, KeptJob), clock)
        database.execute(REFUSE)
        batches: list[Any] = []

        @queue.handler(batch=3, retry=30)
        def work(messages: list[str]) -> None:
            batches.append(messages)

        queue.enqueue("refused")
        queue.enqueue("first")
        drain(broker)
        for message in ("before", "refused", "behind", "next"):
            queue.enqueue(message)
        drain(broker)
        assert batches == [["refused", "first"], ["before", "refused", "behind"], ["next"]]
        done = [payload for payload, at in shown(database, queue, "payload", "done_at") if at]
        assert done == ['"refused"', '"first"', '"before"', '"behind"', '"next"']
        ((due_at, attempt),) = [
            (due_at, attempt) for due_at, attempt in shown(database, queue, "due_at", "attempt") if due_at
        ]
        assert (clock.now() + timedelta(seconds=30), 1) == (due_at, attempt)
        check_unheld(database, queue, stranger)

    def test_a_batch_of_which_a_row_is_refused_for_ever_ends_at_the_cap(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger, clock: ManualClock
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob), clock)
        database.execute(REFUSE)
        attempts: list[Any] = []

        @queue.handler(batch=3, retry=1, max_attempts=2)
        def work(messages: list[str], deliveries: list[Delivery]) -> None:
            attempts.extend(delivery.attempt for delivery in deliveries)

        queue.enqueue_many(["refused", "refused", "refused"])
        for _ in range(3):
            drain(broker)
            clock.advance(2)
        assert sorted(attempts) == [1, 1, 1, 2, 2]
        found = shown(database, queue, "done_at", "error")
        assert sorted((at is not None, error is not None) for at, error in found) == [(False, True)] * 2 + [
            (True, False)
        ]
        check_unheld(database, queue, stranger)

    def test_the_leases_of_all_rows_of_a_batch_are_extended_while_its_handler_runs(
        self, open_broker: OpenBroker, recorder: Recorder
    ) -> None:
        """SUITE 21"""
        broker = open_broker(lease=0.3)
        queue = created(broker, CountedJob)
        batches: list[Any] = []

        @queue.handler(batch=3, workers=2)
        def work(messages: list[int]) -> None:
            batches.append(messages)
            recorder.wait_for("extended", count=3, where=lambda event: event.detail == 3)

        queue.enqueue_many(range(3))
        assert drain(broker, recorder).settled == 3
        assert batches == [[0, 1, 2]]
        assert recorder.of("lease_lost") == []

    def test_a_batch_in_work_past_the_drain_timeout_is_given_back_and_its_late_outcome_changes_nothing(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        stranger: Stranger,
        clock: ManualClock,
        recorder: Recorder,
    ) -> None:
        """SUITE 76, SUITE 31"""
        queue = created(broker, held_by(strategy, CountedJob), clock)
        stopped = threading.Event()
        lost: list[Any] = []

        @queue.handler(batch=3)
        def work(messages: list[int], deliveries: list[Delivery]) -> None:
            assert stopped.wait(LIMIT)
            lost.extend(delivery.lost for delivery in deliveries)

        queue.enqueue_many(range(3))
        consumer = Consumer(broker, observers=[recorder], drain_timeout=0.05)
        consumer.start()
        recorder.wait_for("started", count=3)
        assert Stopped(settled=0, given_back=3, abandoned=1) == consumer.stop()
        before = shown(database, queue, "payload", "due_at", "attempt")
        assert before == [(str(number), None, 0) for number in range(3)]
        check_unheld(database, queue, stranger)
        stopped.set()
        recorder.wait_for("lease_lost", count=3)
        assert lost == [True] * 3
        assert before == shown(database, queue, "payload", "due_at", "attempt")
        check_unheld(database, queue, stranger)

    def test_a_broker_that_is_closed_gives_every_row_of_a_batch_back(
        self, open_broker: OpenBroker, strategy: str, recorder: Recorder
    ) -> None:
        """SUITE 76, for rows that a connection holds; a lease holds its rows without."""
        broker, other = open_broker(lease=0.3), open_broker()
        queue, elsewhere = (created(one, held_by(strategy, CountedJob)) for one in (broker, other))
        go_on = threading.Event()
        handled: list[Any] = []

        @queue.handler(batch=3)
        def work(messages: list[int]) -> None:
            assert go_on.wait(LIMIT)

        elsewhere.handler(batch=3, poll_interval=0.05)(handled.append)
        queue.enqueue_many(range(3))
        with Consumer(broker, observers=[recorder], drain_timeout=LIMIT):
            recorder.wait_for("started", count=3)
            broker.close()
            with Consumer(other, observers=[recorder]):
                recorder.wait_for("acknowledged", count=3)
            go_on.set()
        assert sorted(number for batch in handled for number in batch) == [0, 1, 2]
