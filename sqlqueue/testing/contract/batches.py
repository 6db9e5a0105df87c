"""Batches: the rows of one claim come to their handler as one list, and each is settled by its own outcome."""

import logging
import threading
from typing import Any

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer, Stopped
from sqlqueue.delivery import Delivery
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import LIMIT, Contract, Database, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, ROW_LOCK, Stranger, check_unheld, held_by
from sqlqueue.testing.contract.line_tables import LineGroupJob, LineJob
from sqlqueue.testing.contract.tables import CountedJob, Job, KeptJob, KeyedJob, Order
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder

IN_LINES = pytest.mark.parametrize("strategy", [LEASE, ROW_LOCK], indirect=True)


@attrs.frozen
class Invoice:
    number: str


class BatchesContract(Contract):
    """What is in a batch."""

    def test_batches_follow_each_other_at_once_in_claim_order_until_no_row_is_left(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger, recorder: Recorder
    ) -> None:
        """SUITE 68"""
        queue = created(broker, held_by(strategy, CountedJob))
        batches: list[Any] = []

        @queue.handler(batch=4)
        def work(messages: list[int], deliveries: list[Delivery]) -> None:
            batches.append((messages, [delivery.attempt for delivery in deliveries]))

        ids = [queue.enqueue(number) for number in range(6)]
        drain(broker, recorder)
        assert batches == [([0, 1, 2, 3], [1] * 4), ([4, 5], [1] * 2)]
        assert shown(database, queue, "id") == []
        check_unheld(database, queue, stranger)
        for kind in ("claimed", "started", "acknowledged"):
            assert sorted(event.id for event in recorder.of(kind)) == ids

    def test_a_batch_of_one_is_a_list_of_one(self, broker: Broker, strategy: str) -> None:
        queue = created(broker, held_by(strategy, Job))
        batches: list[Any] = []
        queue.handler(batch=1)(batches.append)
        queue.enqueue_many(range(3))
        drain(broker)
        assert batches == [[0], [1], [2]]

    def test_workers_share_the_rows_and_each_row_comes_once(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob))
        batches: list[Any] = []
        queue.handler(batch=7, workers=3, prefetch=5)(batches.append)
        queue.enqueue_many(range(100))
        assert drain(broker).settled == 100
        assert sorted(number for batch in batches for number in batch) == list(range(100))
        assert max(map(len, batches)) == 7
        assert shown(database, queue, "id") == []

    def test_rows_come_as_a_list_where_there_is_no_payload(self, database: Database, broker: Broker) -> None:
        queue = created(broker, Order)
        batches: list[Any] = []

        @queue.handler(batch=10)
        def work(orders: list[Order]) -> None:
            batches.append([(type(order), order.number) for order in orders])

        for number in "AB":
            database.execute("INSERT INTO orders (placed_at, number) VALUES ('2029-12-31 12:00:00+00:00', ?)", number)
        drain(broker)
        assert batches == [[(Order, "A"), (Order, "B")]]

    def test_a_row_that_does_not_decode_is_settled_by_its_policy_and_the_handler_gets_the_others_in_order(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger, clock: ManualClock
    ) -> None:
        """SUITE 77, PAINS 5"""
        queue = created(broker, held_by(strategy, KeptJob), clock)
        batches: list[Any] = []

        @queue.handler(batch=10)
        def work(messages: list[int], deliveries: list[Delivery]) -> Any:
            batches.append(messages)
            assert [str(message) for message in messages] == [delivery.headers["number"] for delivery in deliveries]
            return [RuntimeError("nine") if message == 9 else None for message in messages]

        for number in range(10):
            queue.enqueue(number, headers={"number": str(number)})
        database.execute("UPDATE kept_jobs SET payload = 'six' WHERE payload = '6'")
        drain(broker)
        assert batches == [[0, 1, 2, 3, 4, 5, 7, 8, 9]]
        found = shown(database, queue, "payload", "done_at", "error", "due_at")
        done = [payload for payload, done_at, _, _ in found if done_at]
        assert done == ["0", "1", "2", "3", "4", "5", "7", "8"]
        assert [payload for payload, _, error, _ in found if error] == ["six"]
        assert [payload for payload, _, _, due_at in found if due_at] == ["9"]
        check_unheld(database, queue, stranger)

    def test_where_no_row_decodes_the_handler_is_not_called(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        """SUITE 78, SUITE e: nor where all are spent."""
        queue = created(broker, held_by(strategy, KeptJob), clock)
        batches: list[Any] = []

        @queue.handler(batch=4)
        def work(messages: list[Invoice]) -> None:
            batches.append(messages)

        queue.enqueue_many([1, 2, 3])
        drain(broker)
        assert batches == []
        assert all(error for (error,) in shown(database, queue, "error"))

    def test_by_key_a_batch_holds_one_row_of_each_key_and_the_first_of_it(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger
    ) -> None:
        queue = created(broker, held_by(strategy, KeyedJob))
        batches: list[Any] = []

        @queue.handler(batch=4, by_key=True)
        def work(messages: list[str], deliveries: list[Delivery]) -> None:
            batches.append(messages)
            assert [delivery.attempt for delivery in deliveries] == [1] * len(messages)

        for number, key in enumerate(["a", "a", "b", None, None, "a", "b", "a"]):
            queue.enqueue(f"{key}{number}", key=key)
        drain(broker)
        for batch in batches:
            keys = [message[0] for message in batch if not message.startswith("N")]
            assert len(set(keys)) == len(keys)
        handled = [message for batch in batches for message in batch]
        assert [message for message in handled if message[0] == "a"] == ["a0", "a1", "a5", "a7"]
        assert [message for message in handled if message[0] == "b"] == ["b2", "b6"]
        assert len(batches[0]) > 1
        assert shown(database, queue, "attempt") == []
        check_unheld(database, queue, stranger)

    def test_by_key_a_row_that_fails_in_its_batch_keeps_the_later_ones_of_its_key_behind_it(
        self, broker: Broker, strategy: str, clock: ManualClock, recorder: Recorder
    ) -> None:
        queue = created(broker, held_by(strategy, KeyedJob), clock)
        handled: list[Any] = []

        @queue.handler(batch=3, by_key=True, retry=5)
        def work(messages: list[str], deliveries: list[Delivery]) -> Any:
            handled.extend(messages)
            return [
                RuntimeError("broken") if (message, delivery.attempt) == ("a0", 1) else None
                for message, delivery in zip(messages, deliveries, strict=True)
            ]

        for number, key in enumerate("aabba"):
            queue.enqueue(f"{key}{number}", key=key)
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("acknowledged", count=2)
            recorder.wait_for("looked")
            assert sorted(handled) == ["a0", "b2", "b3"]
            clock.advance(5)
            recorder.wait_for("acknowledged", count=5)
        assert [message for message in handled if message[0] == "a"] == ["a0", "a0", "a1", "a4"]

    @IN_LINES
    def test_the_batch_of_a_fifo_group_is_its_head_alone(self, broker: Broker, strategy: str) -> None:
        """SUITE 64"""
        queue = created(broker, held_by(strategy, LineGroupJob), group="mail")
        batches: list[Any] = []
        queue.handler(batch=4)(batches.append)
        queue.enqueue_many(range(3))
        drain(broker)
        assert batches == [[0], [1], [2]]

    @IN_LINES
    def test_of_fifo_keys_a_batch_holds_the_fronts(self, broker: Broker, strategy: str) -> None:
        queue = created(broker, held_by(strategy, LineJob))
        batches: list[Any] = []

        @queue.handler(batch=4, workers=2)
        def work(messages: list[str]) -> None:
            batches.append(messages)

        for number, key in enumerate("aababc"):
            queue.enqueue(f"{key}{number}", key=key)
        drain(broker)
        assert all(len({message[0] for message in batch}) == len(batch) for batch in batches)
        handled = [message for batch in batches for message in batch]
        assert [message for message in handled if message[0] == "a"] == ["a0", "a1", "a3"]
        assert len(handled) == 6

    @IN_LINES
    def test_two_brokers_that_take_batches_handle_each_line_in_order(
        self, open_broker: OpenBroker, strategy: str, recorder: Recorder
    ) -> None:
        handled: list[int] = []
        brokers = [open_broker(poll_interval=0.05) for _ in range(2)]
        queues = [created(broker, held_by(strategy, LineJob)) for broker in brokers]
        for queue in queues:
            queue.handler(workers=2, batch=3)(handled.extend)
        for number in range(60):
            queues[0].enqueue(number, key=str(number % 7) if number % 7 else None)
        one, other = (Consumer(broker, observers=[recorder]) for broker in brokers)
        with one, other:
            recorder.wait_for("acknowledged", count=60)
        assert sorted(handled) == list(range(60))
        for line in range(1, 7):
            assert [number for number in handled if number % 7 == line] == list(range(line, 60, 7))

    def test_of_rows_that_share_the_key_of_their_lock_a_batch_holds_one(
        self, database: Database, broker: Broker, stranger: Stranger
    ) -> None:
        """SUITE 74"""
        queue = created(broker, held_by(ADVISORY_LOCK, KeyedJob, "accounts-{account}"))
        batches: list[Any] = []
        queue.handler(batch=4)(batches.append)
        for number, key in enumerate("aabca"):
            queue.enqueue(f"{key}{number}", key=key)
        drain(broker)
        assert batches == [["a0", "b2", "c3"], ["a1"], ["a4"]]
        keys = [f"keyed_jobs:accounts-{key}" for key in "abc"]
        assert keys == stranger.finds_free(*keys)

    def test_a_batch_takes_one_connection_however_many_rows_it_holds(
        self, open_broker: OpenBroker, seated: str
    ) -> None:
        """SUITE 73"""
        broker = open_broker(pool_size=2)
        queue = created(broker, held_by(seated, Job))
        batches: list[Any] = []
        queue.handler(batch=10)(batches.append)
        queue.enqueue_many(range(20))
        drain(broker)
        assert batches == [list(range(10)), list(range(10, 20))]

    def test_a_batch_that_no_handler_took_is_claimable_at_once(
        self, database: Database, broker: Broker, clock: ManualClock, recorder: Recorder, stranger: Stranger
    ) -> None:
        """SUITE 76: claimed ahead, when the consumer stops."""
        queue = created(broker, CountedJob, clock)
        go_on = threading.Event()

        @queue.handler(batch=2, prefetch=2)
        def work(messages: list[int]) -> None:
            assert go_on.wait(LIMIT)

        queue.enqueue_many(range(6))
        consumer = Consumer(broker, observers=[recorder])
        consumer.start()
        recorder.wait_for("claimed", count=4)
        recorder.wait_for("started", count=2)
        consumer.request_stop()
        recorder.wait_for("released", count=2)
        go_on.set()
        assert Stopped(settled=2, given_back=2, abandoned=0) == consumer.stop()
        assert shown(database, queue, "payload", "attempt") == [(str(number), 0) for number in range(2, 6)]
        check_unheld(database, queue, stranger)

    def test_a_failure_names_every_row_that_it_settles(
        self, broker: Broker, strategy: str, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob), clock)

        @queue.handler(batch=3, retry=5)
        def work(messages: list[int]) -> None:
            raise RuntimeError("broken")

        ids = [queue.enqueue(number) for number in range(3)]
        with caplog.at_level(logging.ERROR, "sqlqueue"):
            drain(broker)
        (line,) = [record.getMessage() for record in caplog.records]
        assert line == f"queue counted_jobs: rows {ids[0]}, {ids[1]}, {ids[2]}: the handler failed on their batch"
