"""Advisory locks: a lock on each row's key holds it, whoever keeps the lock."""

import threading
from functools import partial
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.observers import Event
from sqlqueue.outcome import DeadLetter, Outcome, Retry
from sqlqueue.spec import AdvisoryLock, TableSpec
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import LIMIT, Contract, Database, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, Stranger, key_of
from sqlqueue.testing.contract.holding import held_by as held_by_strategy
from sqlqueue.testing.contract.tables import CountedJob, Job, KeptJob, KeyedJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder

# 10,000 rows of so many keys.
FILL = """
INSERT INTO keyed_jobs (account, payload)
WITH RECURSIVE numbers(number) AS (SELECT 0 UNION ALL SELECT number + 1 FROM numbers WHERE number < 9999)
SELECT CAST(number - number / ? * ? AS text), '0' FROM numbers
"""


def held_by(declared: type, lock: "str | AdvisoryLock | None" = None) -> TableSpec:
    return held_by_strategy(ADVISORY_LOCK, declared, lock)


def _of(queue: str, event: Event) -> bool:
    return event.queue == queue


class AdvisoryContract(Contract):
    """The rows of one key run one at a time, on every instance; a key that is held hides no other."""

    def test_the_key_of_the_row_in_work_is_held_and_no_other_and_none_after_its_ack(
        self, broker: Broker, stranger: Stranger
    ) -> None:
        """SUITE 37"""
        queue = created(broker, held_by(Job, "rows-{id}"))
        ids = [queue.enqueue(number) for number in range(2)]
        keys = [key_of(queue, f"rows-{id}") for id in ids]
        free: list[Any] = []
        queue.handler(lambda message: free.append(stranger.finds_free(*keys)))
        drain(broker)
        assert free == [keys[1:], keys[:1]]
        assert keys == stranger.finds_free(*keys)

    @pytest.mark.parametrize("batch", [None, 10], ids=["singly", "in batches"])
    def test_a_failed_row_holds_back_its_key_and_no_other_on_every_instance(
        self, open_broker: OpenBroker, clock: ManualClock, batch: int | None
    ) -> None:
        """SPEC 10: until it is tried again, before the others."""
        handled: list[Any] = []
        failing = [0]

        def work(message: Any) -> Any:
            if message in failing:
                failing.remove(message)
                return Retry(60)
            handled.append(message)
            return None

        one, other = open_broker(), open_broker()
        queue, its_own = (created(broker, held_by(KeyedJob, "{account}"), clock) for broker in (one, other))
        for each in (queue, its_own):
            take = work if batch is None else lambda messages: [work(message) for message in messages]
            each.handler(by_key=True, batch=batch)(take)
        queue.enqueue(0, key="jane")
        drain(one)
        for number, key in enumerate(("jane", "jane", "john", None), 1):
            queue.enqueue(number, key=key)
        queue.enqueue(5, key="john", delay=30)  # it has not begun, and holds nobody back
        queue.enqueue(6, key="john")
        drain(other)
        assert sorted(handled) == [3, 4, 6]
        clock.advance(30)
        drain(other)
        clock.advance(30)
        drain(other)
        assert handled[3:] == [5, 0, 1, 2]

    @pytest.mark.parametrize(
        "outcome",
        [None, Retry(), Retry(1), DeadLetter("no such customer"), RuntimeError("broken")],
        ids=["ack", "retry", "later", "dead letter", "failure"],
    )
    def test_every_outcome_lets_the_key_go_and_the_next_delivery_of_it_starts(
        self, broker: Broker, stranger: Stranger, clock: ManualClock, recorder: Recorder, outcome: Outcome | Exception
    ) -> None:
        """SUITE 38: once, so that a second release finds nothing to let go."""
        queue = created(broker, held_by(KeptJob, "one"), clock)
        outcomes: list[Any] = [outcome]

        @queue.handler(retry=1)
        def work(message: Any) -> Any:
            given = outcomes.pop() if outcomes else None
            if isinstance(given, RuntimeError):
                raise given
            return given

        queue.enqueue("x")
        drain(broker, recorder)
        key = key_of(queue, "one")
        assert [key] == stranger.finds_free(key)
        assert not stranger.unlock(key)
        queue.enqueue("y")
        clock.advance(1)
        drain(broker, recorder)
        assert recorder.of("acknowledged", "parked", "retried", "gone", "trouble")[-1].kind == "acknowledged"
        assert [key] == stranger.finds_free(key)

    def test_two_rows_of_one_key_run_one_after_the_other(
        self, database: Database, broker: Broker, recorder: Recorder
    ) -> None:
        """SUITE 39"""
        queue = created(broker, held_by(Job, "one"))
        first, handled = threading.Event(), []

        @queue.handler(workers=2)
        def work(message: int) -> None:
            handled.append(message)
            assert first.wait(LIMIT)

        queue.enqueue_many([1, 2])
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("started")
            recorder.wait_for("looked")  # by the second worker
            assert handled == [1]
            first.set()
            recorder.wait_for("acknowledged", count=2)
        assert handled == [1, 2]
        assert shown(database, queue, "id") == []

    def test_two_tables_with_equal_keys_do_not_wait_for_each_other(self, broker: Broker) -> None:
        """SUITE 41, PAINS 26"""
        both = threading.Barrier(2, timeout=LIMIT)
        met: list[int] = []

        def meet(message: Any) -> None:
            met.append(both.wait())

        for declared in (Job, CountedJob):
            queue = created(broker, held_by(declared, "one"))
            queue.handler(meet)
            queue.enqueue("x")
        drain(broker)
        assert sorted(met) == [0, 1]

    def test_two_tables_that_share_their_keys_wait_for_each_other_and_for_strangers(
        self, open_broker: OpenBroker, stranger: Stranger, recorder: Recorder
    ) -> None:
        """SUITE 41: the key is then the template's text alone."""
        broker = open_broker(poll_interval=0.05)
        queues = [created(broker, held_by(one, AdvisoryLock("one", shared=True))) for one in (Job, CountedJob)]
        lock, running, together = threading.Lock(), [], []
        done = threading.Event()

        def work(message: Any, delivery: Delivery) -> None:
            with lock:
                running.append(delivery.queue)
                together.append(len(running))
            assert done.wait(LIMIT)
            with lock:
                running.remove(delivery.queue)

        for queue in queues:
            queue.handler(work)
            queue.enqueue("x")
        assert stranger.lock("one")
        with Consumer(broker, observers=[recorder]):
            for queue in queues:
                recorder.wait_for("looked", where=partial(_of, queue.name))
            assert together == []
            assert stranger.unlock("one")
            (first,) = recorder.wait_for("started")
            recorder.clear()
            recorder.wait_for("looked", where=lambda event: event.queue != first.queue)
            done.set()
            recorder.wait_for("acknowledged", count=2)
        assert together == [1, 1]

    def test_a_key_held_elsewhere_keeps_none_of_the_rows_behind_it_waiting(
        self, database: Database, broker: Broker, stranger: Stranger, recorder: Recorder
    ) -> None:
        """SUITE 42, PAINS 16: nobody looks again for an hour, and there are 10,000 rows in front."""
        queue = created(broker, held_by(KeyedJob, "accounts-{account}"))
        handled: list[Any] = []
        queue.handler(handled.append)
        database.execute(FILL, 1, 1)
        queue.enqueue("behind", key="free")
        assert stranger.lock(key_of(queue, "accounts-0"))
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("acknowledged")
            assert handled == ["behind"]

    def test_a_key_in_work_here_keeps_none_of_the_rows_behind_it_waiting(
        self, database: Database, broker: Broker, recorder: Recorder
    ) -> None:
        """SUITE 42"""
        queue = created(broker, held_by(KeyedJob, "accounts-{account}"))
        other = threading.Event()

        @queue.handler(workers=2)
        def work(message: str) -> None:
            if message == "b":
                other.set()
            assert other.wait(LIMIT)

        for message in ("a1", "a2", "b"):
            queue.enqueue(message, key=message[0])
        drain(broker, recorder)
        assert len(recorder.of("acknowledged")) == 3

    def test_a_null_in_a_key_is_an_empty_text(self, broker: Broker, stranger: Stranger, recorder: Recorder) -> None:
        """SPEC 14"""
        queue = created(broker, held_by(KeyedJob, "{account}-accounts"))
        handled: list[Any] = []
        queue.handler(handled.append)
        queue.enqueue("none")
        queue.enqueue("some", key="some")
        assert stranger.lock(key_of(queue, "-accounts"))
        drain(broker)
        assert handled == ["some"]
        assert stranger.unlock(key_of(queue, "-accounts"))
        drain(broker)
        assert handled == ["some", "none"]

    def test_the_attempt_is_counted_and_committed_when_the_row_is_taken(
        self, database: Database, broker: Broker
    ) -> None:
        """SUITE 46"""
        queue = created(broker, held_by(CountedJob))
        seen: list[Any] = []

        @queue.handler
        def work(message: Any, delivery: Delivery) -> None:
            seen.append((delivery.attempt, shown(database, queue, "attempt")))

        queue.enqueue("x")
        drain(broker)
        assert seen == [(1, [(1,)])]

    def test_after_many_rows_no_lock_is_left(self, database: Database, broker: Broker, stranger: Stranger) -> None:
        """PAINS 26"""
        queue = created(broker, held_by(Job, "rows-{id}"))
        handled: list[int] = []
        queue.handler(workers=4)(handled.append)
        queue.enqueue_many(range(500))
        keys = [key_of(queue, f"rows-{id}") for (id,) in shown(database, queue, "id")]
        drain(broker)
        assert sorted(handled) == list(range(500))
        assert stranger.finds_free(*keys[::10]) == keys[::10]
