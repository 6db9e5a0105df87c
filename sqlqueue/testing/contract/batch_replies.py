"""Replies of batches: one publish for all of them, and each row settles by what was confirmed of it."""

import logging
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.errors import PublishError
from sqlqueue.outcome import DeadLetter, Drop
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay import MemoryPublisher
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, created, shown
from sqlqueue.testing.contract.holding import Stranger, check_unheld, held_by
from sqlqueue.testing.contract.replies import sent
from sqlqueue.testing.contract.tables import CountedJob, KeptJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder


class BatchRepliesContract(Contract):
    """What a handler of batches replies."""

    @pytest.fixture
    def bus(self) -> MemoryPublisher:
        return MemoryPublisher("bus")

    def test_the_replies_of_a_batch_go_out_in_one_publish_in_order(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger, bus: MemoryPublisher
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob))

        @queue.handler(batch=4, reply_to=bus)
        def handle(messages: list[int], deliveries: list[Delivery]) -> list[Any]:
            replies = [[b"first", b"second"] if number == 1 else None if number == 2 else number for number in messages]
            deliveries.clear()  # it is the handler's own
            return replies

        queue.enqueue_many(range(6))
        drain(broker)
        assert [[(one.id, one.payload) for one in call] for call in bus.calls] == [
            [("1", b"0"), ("2-1", b"first"), ("2-2", b"second"), ("4", b"3")],
            [("5", b"4"), ("6", b"5")],
        ]
        assert shown(database, queue, "id") == []
        check_unheld(database, queue, stranger)

    def test_rows_whose_messages_were_confirmed_are_acknowledged_and_the_others_fail(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        clock: ManualClock,
        bus: MemoryPublisher,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob), clock)
        failures: list[str] = []

        def policy(attempt: int, error: BaseException) -> float:
            failures.append(str(error))
            return 60.0

        queue.handler(batch=5, reply_to=bus, retry=policy)(lambda messages: [[number, b"more"] for number in messages])
        bus.refuse(lambda message: message.id in ("2-2", "4-1"))
        queue.enqueue_many(range(5))
        with caplog.at_level(logging.ERROR), Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("retried", count=2)
            recorder.wait_for("acknowledged", count=3)
            assert [id for (id,) in shown(database, queue, "id")] == [2, 4]
            bus.accept()
            clock.advance(60)
            recorder.wait_for("acknowledged", count=5)
        assert sorted(failures) == [f"message {id} was not confirmed: refused" for id in ("2-2", "4-1")]
        assert [[one.id for one in call] for call in bus.calls[1:]] == [["2-1", "2-2", "4-1", "4-2"]]
        assert len([line for line in caplog.messages if "the handler failed" in line]) == 2

    @pytest.mark.parametrize(
        "error", [OSError("away"), PublishError("away"), PublishError("odd", {99: "nobody's"})], ids=repr
    )
    def test_a_publish_that_fails_for_all_fails_all_and_is_logged_once(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        clock: ManualClock,
        bus: MemoryPublisher,
        caplog: pytest.LogCaptureFixture,
        error: Exception,
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob), clock)
        queue.handler(batch=5, reply_to=bus, retry=60)(lambda messages: messages)
        bus.fail(error)
        queue.enqueue_many(range(5))
        with caplog.at_level(logging.ERROR), Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("retried", count=5)
            assert (bus.messages, len(shown(database, queue, "id"))) == ([], 5)
            assert len(caplog.messages) == 1
            clock.advance(60)
            recorder.wait_for("acknowledged", count=5)
        assert [message.payload for message in bus.messages] == [b"0", b"1", b"2", b"3", b"4"]

    def test_outcomes_and_replies_that_cannot_be_sent_stand_beside_replies(
        self, database: Database, broker: Broker, strategy: str, bus: MemoryPublisher
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob))
        replies = [Drop("no"), b"one", DeadLetter("dead"), object(), ValueError("bad"), b"two", None]
        queue.handler(batch=7, reply_to=bus, retry=None)(lambda messages: replies)
        queue.enqueue_many(range(7))
        drain(broker)
        assert sent(bus) == [("2", b"one"), ("6", b"two")]
        rows = shown(database, queue, "done_at", "error")
        assert [done is not None for done, _ in rows] == [True, True, False, False, False, True, True]
        errors = [error for _, error in rows if error]
        assert errors[0] == "dead"
        assert "object cannot be stored as JSON" in errors[1]
        assert errors[2] == "ValueError: bad"

    def test_a_failure_of_all_messages_leaves_the_outcomes_of_rows_that_sent_none(
        self, database: Database, broker: Broker, strategy: str, bus: MemoryPublisher
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob))
        queue.handler(batch=3, reply_to=bus, retry=None)(lambda messages: [b"one", None, Drop("no")])
        bus.fail(OSError("away"))
        queue.enqueue_many(range(3))
        drain(broker)
        rows = shown(database, queue, "done_at", "error")
        assert [done is not None for done, _ in rows] == [False, True, True]
        assert [error is not None for _, error in rows] == [True, False, False]

    @pytest.mark.parametrize("returned", [[b"one"], b"one", {"a": 1}, OutgoingMessage(payload=b"")], ids=repr)
    def test_what_does_not_say_what_becomes_of_each_row_is_a_failure_and_nothing_is_sent(
        self, database: Database, broker: Broker, bus: MemoryPublisher, returned: Any
    ) -> None:
        queue = created(broker, KeptJob)
        queue.handler(batch=3, reply_to=bus, retry=None)(lambda messages: returned)
        queue.enqueue_many(range(3))
        drain(broker)
        assert bus.calls == []
        assert all("reply or outcome" in error for (error,) in shown(database, queue, "error"))

    def test_a_stop_in_the_publish_gives_all_rows_back(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger, bus: MemoryPublisher
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob))
        queue.handler(batch=3, reply_to=bus)(lambda messages: messages)
        bus.fail(KeyboardInterrupt())
        queue.enqueue_many(range(3))
        with pytest.raises(KeyboardInterrupt):
            drain(broker)
        assert shown(database, queue, "attempt") == [(0,)] * 3
        check_unheld(database, queue, stranger)
