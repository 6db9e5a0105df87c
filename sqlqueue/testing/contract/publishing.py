"""Replies: published, confirmed, settled, in this order, whatever goes wrong between."""

from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.errors import PublishError
from sqlqueue.outcome import Retry
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay import MemoryPublisher
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import Stranger, check_unheld, held_by
from sqlqueue.testing.contract.replies import sent
from sqlqueue.testing.contract.tables import CountedJob, KeptJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder


class PublishingContract(Contract):
    """The order of things: published, confirmed, settled."""

    @pytest.fixture
    def bus(self) -> MemoryPublisher:
        return MemoryPublisher("bus")

    @pytest.mark.parametrize("transactional", [False, True])
    def test_the_row_is_there_until_its_message_is_confirmed(
        self, database: Database, broker: Broker, strategy: str, bus: MemoryPublisher, transactional: bool
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob))
        queue.handler(reply_to=bus, transactional=transactional)(lambda message: message)
        with Consumer(broker, observers=[recorder := Recorder()]):
            with bus.held():
                queue.enqueue("one")
                bus.wait_for_calls(1)
                assert len(shown(database, queue, "id")) == 1
                assert recorder.of("acknowledged") == []
            recorder.wait_for("acknowledged")
        assert sent(bus) == [("1", b'"one"')]
        assert shown(database, queue, "id") == []

    @pytest.mark.parametrize(
        "error", [PublishError("away"), PublishError("one", {0: "full"}), OSError("away")], ids=repr
    )
    def test_a_publish_that_fails_is_a_failure_of_the_row_and_is_tried_again(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        clock: ManualClock,
        stranger: Stranger,
        bus: MemoryPublisher,
        error: Exception,
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob), clock)
        failures: list[Any] = []

        def policy(attempt: int, failure: BaseException) -> float:
            failures.append((attempt, failure))
            return 60.0

        queue.handler(reply_to=bus, retry=policy)(lambda message: message)
        bus.fail(error, times=2)
        queue.enqueue("one")
        with Consumer(broker, observers=[recorder := Recorder()]):
            for count in (1, 2):
                recorder.wait_for("retried", count=count)
                assert (bus.messages, len(shown(database, queue, "id"))) == ([], 1)
                clock.advance(60)
            recorder.wait_for("acknowledged")
        assert failures == [(1, error), (2, error)]
        assert sent(bus) == [("1", b'"one"')]
        check_unheld(database, queue, stranger)

    def test_a_row_whose_message_is_never_confirmed_is_parked_with_the_reason(
        self, database: Database, broker: Broker, strategy: str, bus: MemoryPublisher
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob))
        queue.handler(reply_to=bus, retry=0, max_attempts=3)(lambda message: message)
        bus.refuse(lambda message: True)
        queue.enqueue("one")
        with Consumer(broker, observers=[recorder := Recorder()]):
            (parked,) = recorder.wait_for("parked")
        ((error,),) = shown(database, queue, "error")
        assert (parked.attempt, len(bus.calls)) == (3, 3)
        assert "memory://bus: 1 of 1 not confirmed" in error

    def test_a_message_without_a_destination_fails_where_the_target_needs_one(
        self, database: Database, broker: Broker, strategy: str, bus: MemoryPublisher
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob))

        @queue.handler(reply_to=bus, retry=None)
        def handle(destination: str | None) -> OutgoingMessage:
            return OutgoingMessage(payload=b"x", destination=destination)

        bus.refuse(lambda message: message.destination is None)
        for destination in ("orders", None):
            queue.enqueue(destination)
        drain(broker)
        assert [message.destination for message in bus.messages] == ["orders"]
        rows = shown(database, queue, "done_at", "error")
        assert [(done is not None, error is not None) for done, error in rows] == [(True, False), (False, True)]

    def test_what_a_transactional_handler_wrote_is_undone_where_the_publish_fails(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock, bus: MemoryPublisher
    ) -> None:
        database.execute("CREATE TABLE notes (note text)")
        queue = created(broker, held_by(strategy, CountedJob), clock)

        @queue.handler(reply_to=bus, transactional=True, retry=60)
        def handle(message: str, delivery: Delivery) -> str:
            delivery.connection.execute("INSERT INTO notes VALUES ('one')")
            return message

        bus.fail(PublishError("away"))
        queue.enqueue("one")
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("retried")
            assert database.execute("SELECT note FROM notes") == []
            clock.advance(60)
            recorder.wait_for("acknowledged")
        assert [note for (note,) in database.execute("SELECT note FROM notes")] == ["one"]
        assert sent(bus) == [("1", b'"one"')]

    @pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
    def test_a_stop_in_the_publish_gives_the_row_back_with_its_attempt(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger, bus: MemoryPublisher, stop: Any
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob))
        queue.handler(reply_to=bus)(lambda message: message)
        bus.fail(stop())
        queue.enqueue("one")
        with pytest.raises(stop):
            drain(broker)
        assert shown(database, queue, "attempt") == [(0,)]
        check_unheld(database, queue, stranger)

    def test_a_publisher_that_is_closed_meanwhile_loses_nothing(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock, bus: MemoryPublisher
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob), clock)
        queue.handler(reply_to=bus, retry=60)(lambda message: message)
        with Consumer(broker, observers=[recorder := Recorder()]):
            with bus.held():
                queue.enqueue("one")
                bus.wait_for_calls(1)
                bus.close()
            recorder.wait_for("retried")
        assert bus.messages == []
        assert shown(database, queue, "attempt") == [(1,)]

    def test_a_broker_that_is_closed_meanwhile_loses_nothing(
        self, database: Database, open_broker: OpenBroker, strategy: str
    ) -> None:
        broker, other = open_broker(), open_broker()
        bus = MemoryPublisher.named("contract-closing")
        queue = created(broker, held_by(strategy, CountedJob))
        queue.handler(reply_to="memory://contract-closing")(lambda message: message)
        with Consumer(broker, drain_timeout=1), bus.held():
            queue.enqueue("one")
            bus.wait_for_calls(1)
            broker.close()
        assert len(shown(database, other.queue(queue.spec), "id")) == 1

    @pytest.mark.parametrize(
        ("reply", "said"),
        [
            (object(), "object cannot be stored as JSON"),
            ([b"fine", object()], "object cannot be stored as JSON"),
            (OutgoingMessage(payload="text"), "payload is 'text'; give bytes"),  # type: ignore[arg-type]
            (OutgoingMessage(payload=b"", key=7), "key is 7; give text"),  # type: ignore[arg-type]
            (OutgoingMessage(payload=b"", headers={"a": 1}), "header 'a' is 1; give text"),  # type: ignore[dict-item]
            ([b"fine", Retry()], "has the outcome Retry(after=None) inside"),
        ],
        ids=lambda value: value if isinstance(value, str) else "",
    )
    def test_a_reply_that_cannot_be_sent_fails_its_row_and_nothing_of_it_is_sent(
        self, database: Database, broker: Broker, bus: MemoryPublisher, reply: Any, said: str
    ) -> None:
        queue = created(broker, KeptJob)
        queue.handler(reply_to=bus, retry=None)(lambda message: reply)
        queue.enqueue("one")
        drain(broker)
        ((error,),) = shown(database, queue, "error")
        assert said in error
        assert bus.calls == []

    def test_a_row_that_is_known_to_be_lost_publishes_nothing_more(
        self, broker: Broker, clock: ManualClock, bus: MemoryPublisher
    ) -> None:
        queue = created(broker, CountedJob, clock)

        @queue.handler(reply_to=bus)
        def handle(message: str, delivery: Delivery) -> str:
            delivery.lose()
            return message

        queue.enqueue("one")
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("retried", "lease_lost")
        assert bus.calls == []
