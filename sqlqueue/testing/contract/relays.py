"""Relays: each row goes on as it is, once it is committed, in the order of its key."""

import json
from datetime import datetime
from typing import Any
from uuid import UUID

import attrs
import pytest

from sqlqueue import column
from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.errors import DeclarationError
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay import MemoryPublisher, relay
from sqlqueue.spec import spec_of
from sqlqueue.table import table
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import LIMIT, Contract, Database, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import LEASE, ROW_LOCK, Stranger, check_unheld, held_by
from sqlqueue.testing.contract.line_tables import LineJob, with_key_of
from sqlqueue.testing.contract.replies import sent
from sqlqueue.testing.contract.tables import FullJob, Job, KeyedJob, NamedJob, RawJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder

IN_LINES = pytest.mark.parametrize("strategy", [LEASE, ROW_LOCK], indirect=True)
SIZES = pytest.mark.parametrize("batch", [None, 10], ids=["singly", "batches"])


@table("placed_orders")
class PlacedOrder:
    """Row mode, with columns that are the queue's own."""

    id: int = column.id(generated=True)
    customer: str | None = column.partition_key()
    due_at: datetime | None = column.retry_after()
    attempt: int = column.attempt()
    locked_until: datetime | None = column.lease()
    notes: dict[str, str] | None = column.headers()
    error: str | None = column.error()
    number: str
    placed_at: datetime


class RelayContract(Contract):
    """What a relay sends."""

    @pytest.fixture
    def bus(self) -> MemoryPublisher:
        return MemoryPublisher("bus")

    @SIZES
    def test_each_event_goes_on_as_it_is_stored_with_key_headers_and_id(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        stranger: Stranger,
        bus: MemoryPublisher,
        batch: int | None,
    ) -> None:
        queue = created(broker, held_by(strategy, FullJob), group="mail")
        relay(queue, to=bus, destination="orders", batch=batch)
        ids = [queue.enqueue({"n": n}, key=f"k{n}", headers={"trace": f"t{n}"}) for n in range(3)]
        drain(broker)
        assert sorted(bus.messages, key=lambda message: message.key or "") == [
            OutgoingMessage(
                payload=b'{"n":%d}' % n, destination="orders", key=f"k{n}", headers={"trace": f"t{n}"}, id=str(id)
            )
            for n, id in enumerate(ids)
        ]
        assert [done is not None for (done,) in shown(database, queue, "done_at")] == [True] * 3
        check_unheld(database, queue, stranger)

    def test_a_payload_is_handed_on_byte_for_byte_whatever_it_is(self, broker: Broker, bus: MemoryPublisher) -> None:
        queue = created(broker, RawJob)
        relay(queue, to=bus)
        payloads = [b"\x00\xff no JSON", b'{ "spaced" : 1 }', b""]
        for payload in payloads:
            queue.enqueue(payload)
        drain(broker)
        assert [message.payload for message in bus.messages] == payloads

    @SIZES
    def test_in_row_mode_the_row_goes_on_without_what_is_the_queues_own(
        self, broker: Broker, strategy: str, bus: MemoryPublisher, batch: int | None
    ) -> None:
        queue = created(broker, held_by(strategy, PlacedOrder))
        relay(queue, to=bus, batch=batch)
        row: dict[str, Any] = {
            "number": "A-1",
            "placed_at": ManualClock().now(),
            "customer": "jane",
            "notes": {"x": "y"},
            "attempt": 0,
        }
        queue.enqueue(PlacedOrder(**row) if strategy == LEASE else row)
        drain(broker)
        (message,) = bus.messages
        assert (message.id, message.key, message.headers) == ("1", "jane", {"x": "y"})
        assert json.loads(message.payload) == {
            "id": 1,
            "customer": "jane",
            "number": "A-1",
            "placed_at": "2030-01-01T00:00:00+00:00",
        }

    @SIZES
    def test_an_event_of_a_transaction_that_is_rolled_back_is_never_sent(
        self, database: Database, broker: Broker, strategy: str, bus: MemoryPublisher, batch: int | None
    ) -> None:
        queue = created(broker, held_by(strategy, Job))
        relay(queue, to=bus, batch=batch)
        service = database.connect()
        for number, ending in enumerate(["COMMIT", "ROLLBACK", "COMMIT"]):
            service.execute("BEGIN")
            queue.enqueue(number, connection=service)
            service.execute(ending)
        drain(broker)
        assert [message.payload for message in bus.messages] == [b"0", b"2"]

    @pytest.mark.parametrize("wrong", [None, 7, object(), MemoryPublisher], ids=["none", "number", "object", "class"])
    def test_without_a_publisher_nothing_is_declared(self, broker: Broker, wrong: Any) -> None:
        """Such as where a setting is missing: each event would be done with, and sent nowhere."""
        queue = created(broker, Job)
        with pytest.raises(DeclarationError, match=r"^to=.* is no publisher; give a URL, or an object with publish"):
            relay(queue, to=wrong)
        assert queue.registered is None

    @pytest.mark.parametrize("wrong", [7, b"orders", ["orders"]], ids=repr)
    def test_a_destination_that_is_no_text_is_refused(self, broker: Broker, bus: MemoryPublisher, wrong: Any) -> None:
        queue = created(broker, Job)
        with pytest.raises(DeclarationError, match=r"relay\(destination=.*\): give text, or None for the"):
            relay(queue, to=bus, destination=wrong)
        assert queue.registered is None

    def test_an_order_that_is_placed_twice_is_one_event(
        self, database: Database, broker: Broker, bus: MemoryPublisher
    ) -> None:
        queue = created(broker, NamedJob)
        relay(queue, to=bus)
        database.execute("CREATE TABLE placed (number varchar(20) PRIMARY KEY)")
        service = database.connect()
        for _ in range(2):
            service.execute("BEGIN")
            service.execute("INSERT INTO placed VALUES ('A-1') ON CONFLICT DO NOTHING")
            queue.enqueue(NamedJob(id="placed-A-1", payload='"A-1"'), on_conflict="ignore", connection=service)
            service.execute("COMMIT")
        drain(broker)
        assert sent(bus) == [("placed-A-1", b'"A-1"')]

    @pytest.mark.parametrize(("kind", "key", "text"), [(int, 7, "7"), (UUID, UUID(int=7), str(UUID(int=7)))])
    def test_keys_of_numbers_and_uuids_are_sent_as_text(
        self, broker: Broker, bus: MemoryPublisher, kind: type, key: Any, text: str
    ) -> None:
        queue = created(broker, with_key_of(KeyedJob, kind))
        relay(queue, to=bus)
        queue.enqueue("one", key=key)
        drain(broker)
        assert [message.key for message in bus.messages] == [text]

    def test_a_key_that_is_no_text_fails_its_row_with_the_mend(self, database: Database, broker: Broker) -> None:
        bus, spec = MemoryPublisher(), spec_of(LineJob)
        columns = [attrs.evolve(one, type=bytes, fifo=False) if one.field == "account" else one for one in spec.columns]
        queue = created(broker, attrs.evolve(spec, columns=columns, row_class=None))
        relay(queue, to=bus, retry=None)
        queue.enqueue("one", key=b"\xff")
        queue.enqueue("two")
        drain(broker)
        ((error,),) = shown(database, queue, "error")
        assert "of type bytes; a message's key is made of text, a whole number or a UUID" in error
        assert [message.payload for message in bus.messages] == [b'"two"']


class RelayOrderContract(Contract):
    """A failing event holds back the later ones of its key, and nobody else's."""

    @pytest.fixture
    def bus(self) -> MemoryPublisher:
        return MemoryPublisher("bus")

    @SIZES
    def test_an_event_that_fails_is_never_overtaken_by_one_of_its_key(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        clock: ManualClock,
        bus: MemoryPublisher,
        batch: int | None,
    ) -> None:
        queue = created(broker, held_by(strategy, KeyedJob), clock)
        relay(queue, to=bus, workers=3, batch=batch, retry=60)
        refused = {b"1"}
        bus.refuse(lambda message: message.payload in refused)
        for number in range(9):
            queue.enqueue(number, key="abc"[number % 3])
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("acknowledged", count=6)
            recorder.wait_for("retried")
            assert by_key(bus) == {"a": [0, 3, 6], "c": [2, 5, 8]}
            assert len(shown(database, queue, "id")) == 3
            bus.accept()
            clock.advance(60)
            recorder.wait_for("acknowledged", count=7)
            clock.advance(1)  # those behind it may have been put off a little longer
            recorder.wait_for("acknowledged", count=9)
        assert by_key(bus) == {"a": [0, 3, 6], "b": [1, 4, 7], "c": [2, 5, 8]}

    @IN_LINES
    @SIZES
    def test_over_two_instances_lines_keep_the_order_though_publishes_fail(
        self,
        database: Database,
        open_broker: OpenBroker,
        strategy: str,
        clock: ManualClock,
        bus: MemoryPublisher,
        batch: int | None,
    ) -> None:
        brokers = [open_broker(poll_interval=0.05), open_broker(poll_interval=0.05)]
        queues = [created(broker, held_by(strategy, LineJob)) for broker in brokers]
        for queue in queues:
            relay(queue, to=bus, workers=2, batch=batch, retry=0.01)
        bus.fail(OSError("away"), times=7)
        for number in range(40):
            queues[0].enqueue(number, key=f"k{number % 4}")
        with Consumer(brokers[0]), Consumer(brokers[1]):
            bus.wait_for(40, LIMIT)
        assert by_key(bus) == {f"k{key}": list(range(key, 40, 4)) for key in range(4)}

    def test_an_event_that_is_given_up_lets_the_later_ones_go(
        self, database: Database, broker: Broker, bus: MemoryPublisher
    ) -> None:
        queue = created(broker, LineJob)
        relay(queue, to=bus, max_attempts=2, retry=0)
        bus.refuse(lambda message: message.payload == b"0")
        for number in range(3):
            queue.enqueue(number, key="a")
        with Consumer(broker, observers=[Recorder()]):
            bus.wait_for(2)
        assert by_key(bus) == {"a": [1, 2]}
        assert [error is not None for (error,) in shown(database, queue, "error")] == [True]


def by_key(bus: MemoryPublisher) -> dict[str, list[int]]:
    """The numbers that were published, of each key in order."""
    found: dict[str, list[int]] = {}
    for message in bus.messages:
        found.setdefault(message.key or "", []).append(int(message.payload))
    return found
