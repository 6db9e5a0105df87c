"""The claim order, and the order of the rows of one key."""

import threading
from datetime import timedelta
from typing import Any

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.outcome import Retry
from sqlqueue.queue import Queue
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, spec_of
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import LIMIT, Contract, Database, Holder, created, shown
from sqlqueue.testing.contract.holding import LEASE, SEATED, held_by
from sqlqueue.testing.contract.tables import CountedJob, Job, KeyedJob, RankedJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder

#: `RankedJob` with a priority that may be left out.
UNRANKED = attrs.evolve(
    spec_of(RankedJob),
    columns=[
        attrs.evolve(one, optional=one.optional or one.role is Role.PRIORITY) for one in spec_of(RankedJob).columns
    ],
)

#: `KeyedJob` with priorities.
FIRST_KEYED = attrs.evolve(
    spec_of(KeyedJob),
    columns=[*spec_of(KeyedJob).columns, ColumnSpec(field="priority", type=int, role=Role.PRIORITY)],
)

#: Rows claimed ahead: none, so that each claim takes one row; and enough for one claim to take them all, which a
#: strategy whose deliveries hold their connection never does.
CLAIMS = pytest.mark.parametrize(
    ("strategy", "prefetch"),
    [(LEASE, 0), (LEASE, 9), *((strategy, 0) for strategy in SEATED)],
    ids=["a claim each", "one claim", *SEATED],
    indirect=["strategy"],
)


def _remembered(queue: Queue, **settings: Any) -> list[Any]:
    """What a handler of the queue takes, in order."""
    handled: list[Any] = []
    queue.handler(**settings)(handled.append)
    return handled


class OrderContract(Contract):
    """Rows are claimed by priority, then by when they fell due, then by id; rows of one key wait for each other."""

    @CLAIMS
    def test_the_smaller_priority_goes_first_then_the_earlier_due_then_the_smaller_id(
        self, broker: Broker, strategy: str, clock: ManualClock, prefetch: int
    ) -> None:
        """SUITE 3"""
        queue = created(broker, held_by(strategy, RankedJob), clock)
        handled = _remembered(queue, prefetch=prefetch)
        now = clock.now()
        for name, priority, ago in [("g", 2, 9), ("f", 1, 0), ("d", 1, 5), ("e", 1, 5), ("a", -1, 0), ("b", 0, 3)]:
            queue.enqueue(name, priority=priority, at=now - timedelta(seconds=ago))
        queue.enqueue("c", priority=1)  # due since ever
        drain(broker)
        assert list("abcdefg") == handled

    @CLAIMS
    def test_without_priorities_and_due_times_the_smaller_id_goes_first(
        self, broker: Broker, strategy: str, prefetch: int
    ) -> None:
        """SUITE 3"""
        queue = created(broker, held_by(strategy, Job))
        handled = _remembered(queue, prefetch=prefetch)
        queue.enqueue_many(range(7))
        drain(broker)
        assert list(range(7)) == handled

    @CLAIMS
    def test_a_row_without_a_priority_has_one_place_whoever_sorts(
        self, database: Database, broker: Broker, strategy: str, prefetch: int
    ) -> None:
        """SUITE 3: it counts as 0, the priority of a row that names none."""
        queue = created(broker, held_by(strategy, UNRANKED))
        handled = _remembered(queue, prefetch=prefetch)
        for name, priority in [("d", 1), ("b", None), ("a", -1), ("c", 0)]:
            database.execute("INSERT INTO ranked_jobs (priority, payload) VALUES (?, ?)", priority, f'"{name}"')
        drain(broker)
        assert list("abcd") == handled

    def test_a_claim_of_fewer_rows_than_it_may_take_takes_the_first_in_claim_order(
        self, broker: Broker, clock: ManualClock
    ) -> None:
        """SUITE 3"""
        queue = created(broker, RankedJob, clock)
        now = clock.now()
        ids = {
            name: queue.enqueue(name, priority=priority, at=now - timedelta(seconds=ago))
            for name, priority, ago in [("f", 2, 9), ("e", 1, 1), ("d", 1, 2), ("c", 1, 3), ("b", 0, 1), ("a", 0, 2)]
        }
        holder = Holder(queue, most=10)
        claimed = [[claim.id for claim in holder.claim(limit)] for limit in (1, 2, 1, 1, 5)]
        assert [[ids[name] for name in names] for names in ("a", "bc", "d", "e", "f")] == claimed

    def test_a_row_without_a_priority_that_every_row_should_have_keeps_no_other_from_being_handled(
        self, database: Database, broker: Broker, caplog: pytest.LogCaptureFixture
    ) -> None:
        """SUITE 3: a start says that such rows are not claimed."""
        created(broker, UNRANKED)
        handled = _remembered(broker.queue(RankedJob))
        for name, priority in [("odd", None), ("b", 1), ("a", 0)]:
            database.execute("INSERT INTO ranked_jobs (priority, payload) VALUES (?, ?)", priority, f'"{name}"')
        drain(broker)
        assert handled == ["a", "b"]
        assert [line for line in caplog.messages if "'priority' may be NULL" in line] != []

    def test_a_row_hidden_until_later_is_handled_when_it_falls_due_and_not_before(
        self, broker: Broker, strategy: str, clock: ManualClock, recorder: Recorder
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob), clock)
        handled = _remembered(queue)
        queue.enqueue("later", delay=60)
        queue.enqueue("now")
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("looked")
            assert handled == ["now"]
            clock.advance(60)
            recorder.wait_for("acknowledged", count=2)
        assert handled == ["now", "later"]

    def test_the_rows_of_a_key_run_one_at_a_time_in_claim_order_whatever_the_workers(
        self, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        """SUITE 67"""
        queue = created(broker, held_by(strategy, KeyedJob), clock)
        lock, running, together = threading.Lock(), dict.fromkeys("ab", 0), dict.fromkeys("ab", 0)
        handled: dict[str, list[int]] = {"a": [], "b": []}
        both = threading.Barrier(2, timeout=LIMIT)

        @queue.handler(workers=3, by_key=True)
        def work(message: int, delivery: Delivery) -> None:
            key = delivery.key
            with lock:
                running[key] += 1
                together[key] = max(together[key], running[key])
            if not handled[key]:
                both.wait()  # the first of a key is slow: the other key runs meanwhile
            handled[key].append(message)
            with lock:
                running[key] -= 1

        for number in range(24):
            queue.enqueue(number, key="ab"[number % 2])
        drain(broker)
        assert {"a": list(range(0, 24, 2)), "b": list(range(1, 24, 2))} == handled
        assert together == {"a": 1, "b": 1}

    def test_a_row_that_fails_keeps_the_later_rows_of_its_key_behind_it_until_it_is_done(
        self, database: Database, broker: Broker, clock: ManualClock, recorder: Recorder
    ) -> None:
        queue = created(broker, KeyedJob, clock)
        handled: list[str] = []

        @queue.handler(workers=2, prefetch=4, by_key=True)
        def work(message: str, delivery: Delivery) -> Retry | None:
            handled.append(message)
            return Retry(60) if message == "a1" and delivery.attempt == 1 else None

        for message in ("a1", "a2", "b1", "a3"):
            queue.enqueue(message, key=message[0])
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("acknowledged")
            recorder.wait_for("released", count=2)
            clock.advance(59)
            recorder.wait_for("looked", count=len(recorder.of("looked")) + 1)
            assert sorted(handled) == ["a1", "b1"]
            clock.advance(1)
            recorder.wait_for("acknowledged", count=2)
            clock.advance(1)  # a row that was put off again is due as well
            recorder.wait_for("acknowledged", count=4)
        assert [message for message in handled if message[0] == "a"] == ["a1", "a1", "a2", "a3"]
        assert shown(database, queue, "id") == []

    def test_rows_without_a_key_have_no_order_among_themselves(
        self, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        """SUITE c"""
        queue = created(broker, held_by(strategy, KeyedJob), clock)
        both = threading.Barrier(2, timeout=LIMIT)
        met: list[int] = []

        @queue.handler(workers=2, by_key=True)
        def work(message: Any) -> None:
            met.append(both.wait())

        queue.enqueue(1)
        queue.enqueue(2)
        drain(broker)
        assert sorted(met) == [0, 1]

    def test_a_row_that_fails_keeps_the_later_rows_of_its_key_unclaimed_until_it_is_done(
        self, database: Database, broker: Broker, seated: str, clock: ManualClock, recorder: Recorder
    ) -> None:
        """PAINS 16: a newer row of a higher priority does not overtake it either."""
        queue = created(broker, held_by(seated, FIRST_KEYED), clock)
        handled: list[str] = []

        @queue.handler(workers=2, by_key=True)
        def work(message: str, delivery: Delivery) -> Retry | None:
            handled.append(message)
            return Retry(60) if message == "a1" and delivery.attempt == 1 else None

        for message in ("a1", "a2", "b1", "a3"):
            queue.enqueue(message, key=message[0])
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("acknowledged")
            recorder.wait_for("retried")
            queue.enqueue("a0", key="a", priority=-1)
            queue.enqueue("b2", key="b")
            recorder.wait_for("acknowledged", count=2)
            clock.advance(59)
            recorder.wait_for("looked", count=len(recorder.of("looked")) + 1)
            assert sorted(handled) == ["a1", "b1", "b2"]
            clock.advance(1)
            recorder.wait_for("acknowledged", count=6)
        assert [message for message in handled if message[0] == "a"] == ["a1", "a1", "a0", "a2", "a3"]
        assert shown(database, queue, "id") == []
