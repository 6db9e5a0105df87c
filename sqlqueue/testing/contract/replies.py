"""Replies: what a handler returns is published and confirmed before its row is settled."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.codec import Codec
from sqlqueue.consumer import Consumer
from sqlqueue.outcome import DeadLetter, Drop, Retry
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay import MemoryPublisher
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import Stranger, check_unheld, held_by
from sqlqueue.testing.contract.tables import FullJob, Job, KeptJob, NamedJob, Order, RawJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder


@attrs.frozen
class Placed:
    number: str


class Pair(NamedTuple):
    left: int
    right: int


def sent(bus: MemoryPublisher) -> list[tuple[str | None, bytes]]:
    return [(message.id, message.payload) for message in bus.messages]


class RepliesContract(Contract):
    """What is published, and when."""

    @pytest.fixture
    def bus(self) -> MemoryPublisher:
        return MemoryPublisher("bus")

    def test_a_reply_is_published_once_and_its_row_goes(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger, bus: MemoryPublisher
    ) -> None:
        queue = created(broker, held_by(strategy, FullJob), group="mail")

        @queue.handler(reply_to=bus, max_attempts=3)
        def place(number: str) -> Placed:
            return Placed(number)

        id = queue.enqueue("A-1", key="jane", headers={"trace": "t-1"})
        drain(broker)
        message = OutgoingMessage(payload=b'{"number":"A-1"}', key="jane", headers={"trace": "t-1"}, id=str(id))
        assert bus.calls == [(message,)]
        assert bus.messages == [message]
        assert [done is not None for (done,) in shown(database, queue, "done_at")] == [True]
        check_unheld(database, queue, stranger)

    @pytest.mark.parametrize(
        ("reply", "payloads"),
        [
            (None, []),
            ([], []),
            ([None], []),
            (Placed("A-1"), [b'{"number":"A-1"}']),
            ({"a": 1}, [b'{"a":1}']),
            ("text", [b'"text"']),
            (0, [b"0"]),
            (b"\x00raw", [b"\x00raw"]),
            (OutgoingMessage(payload=b"own"), [b"own"]),
            ([b"one", None, Placed("two")], [b"one", b'{"number":"two"}']),
            ((b"one", [b"two", b"three"]), [b"one", b"two", b"three"]),
            ([b"alone"], [b"alone"]),
            (Pair(1, 2), [b"[1,2]"]),
        ],
        ids=repr,
    )
    def test_every_kind_of_reply_becomes_messages_with_ids_of_its_row(
        self, database: Database, broker: Broker, bus: MemoryPublisher, reply: Any, payloads: Sequence[bytes]
    ) -> None:
        queue = created(broker, Job)
        queue.handler(reply_to=bus)(lambda message: reply)
        id = queue.enqueue("one")
        drain(broker)
        several = len(payloads) > 1
        ids = [f"{id}-{number}" if several else str(id) for number in range(1, len(payloads) + 1)]
        assert sent(bus) == list(zip(ids, payloads, strict=True))
        assert len(bus.calls) == (1 if payloads else 0)
        assert shown(database, queue, "id") == []

    def test_what_a_message_names_itself_stays(self, broker: Broker, bus: MemoryPublisher) -> None:
        queue = created(broker, FullJob, group="mail")
        own = OutgoingMessage(payload=b"", destination="orders", key="k", headers={"trace": "own", "x": "y"}, id="e-7")
        queue.handler(reply_to=bus)(lambda message: own)
        queue.enqueue("one", key="jane", headers={"trace": "t-1", "lang": "en"})
        drain(broker)
        assert bus.messages == [attrs.evolve(own, headers={"trace": "own", "lang": "en", "x": "y"})]

    def test_an_id_of_text_is_the_messages_as_it_is(self, broker: Broker, bus: MemoryPublisher) -> None:
        queue = created(broker, NamedJob)
        queue.handler(reply_to=bus)(lambda message: [message, message])
        queue.enqueue(NamedJob(id="order-7", payload='"x"'))
        drain(broker)
        assert sent(bus) == [("order-7-1", b'"x"'), ("order-7-2", b'"x"')]

    def test_in_row_mode_a_reply_is_published_as_well(self, broker: Broker, bus: MemoryPublisher) -> None:
        queue = created(broker, Order)
        queue.handler(reply_to=bus)(lambda order: Placed(order.number))
        queue.enqueue(Order(placed_at=ManualClock().now(), number="A-1", attempt=0))
        drain(broker)
        assert sent(bus) == [("1", b'{"number":"A-1"}')]

    @pytest.mark.parametrize("raised", [0, 1])
    @pytest.mark.parametrize(
        ("outcome", "kind"), [(Drop("no"), "dropped"), (DeadLetter("no"), "parked"), (Retry(60.0), "retried")], ids=str
    )
    def test_an_outcome_is_an_outcome(
        self,
        broker: Broker,
        strategy: str,
        clock: ManualClock,
        bus: MemoryPublisher,
        outcome: Any,
        kind: str,
        raised: int,
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob), clock)

        @queue.handler(reply_to=bus)
        def handle(message: str) -> Any:
            if raised:
                raise outcome
            return outcome

        queue.enqueue("one")
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for(kind)
        assert bus.calls == []

    def test_the_codec_of_the_broker_writes_replies(self, open_broker: OpenBroker, bus: MemoryPublisher) -> None:
        class Shout:
            def encode(self, message: Any) -> bytes:
                return str(message).upper().encode()

            def decoder(self, kind: Any) -> Any:
                return lambda stored: stored

        codec: Codec = Shout()
        broker = open_broker(codec=codec)
        queue = created(broker, RawJob)
        queue.handler(reply_to=bus)(lambda message: "placed")
        queue.enqueue(b"one")
        drain(broker)
        assert sent(bus) == [("1", b"PLACED")]

    @pytest.mark.parametrize("several", [False, True], ids=["one", "several"])
    @pytest.mark.parametrize("batch", [None, 10], ids=["singly", "batches"])
    def test_a_message_that_nothing_publishes_is_a_failure_of_its_row(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        caplog: pytest.LogCaptureFixture,
        several: bool,
        batch: int | None,
    ) -> None:
        """Its handler was registered without `reply_to`; the row is no more done than its message is sent."""
        queue = created(broker, held_by(strategy, KeptJob))
        message = OutgoingMessage(payload=b"own")
        reply: Any = [message] if several else message
        queue.handler(batch=batch, retry=None)(lambda given: reply if batch is None else [reply] * len(given))
        queue.enqueue("one")
        with caplog.at_level(logging.ERROR):
            drain(broker)
        ((error, done),) = shown(database, queue, "error", "done_at")
        assert ("register it with handler(reply_to=…)" in error, done) == (True, None)
        assert "row 1: the handler failed" in caplog.text

    def test_a_url_is_opened_by_the_broker_once_and_closed_with_it(self, open_broker: OpenBroker) -> None:
        with open_broker() as broker:
            bus = MemoryPublisher.named("contract-replies")
            queue = created(broker, Job)
            queue.handler(reply_to="memory://contract-replies")(lambda message: message)
            queue.enqueue("one")
            drain(broker)
            assert broker.publisher("memory://contract-replies") is bus
            assert sent(bus) == [("1", b'"one"')]
        assert bus.closed
