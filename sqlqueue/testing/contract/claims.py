"""Claims: who gets which row, and in what form it reaches the handler."""

import threading
from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.errors import DeclarationError
from sqlqueue.queue import Queue
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.testing.clock import START, ManualClock
from sqlqueue.testing.contract.harness import LIMIT, Contract, Database, Holder, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, ROW_LOCK, Stranger, check_unheld, held_by
from sqlqueue.testing.contract.tables import CountedJob, Job, KeptJob, KeyLockedOrder, LockedOrder, Order, RawJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder

#: The same table as `CountedJob`, as a program describes it that reads its columns at run time.
COUNTED = TableSpec(
    name="counted_jobs",
    columns=(
        ColumnSpec(field="id", type=int, role=Role.ID, generated=True),
        ColumnSpec(field="due_at", type=datetime, optional=True, role=Role.RETRY_AFTER),
        ColumnSpec(field="attempt", type=int, role=Role.ATTEMPT),
        ColumnSpec(field="locked_until", type=datetime, optional=True, role=Role.LEASE),
        ColumnSpec(field="payload", type=str, role=Role.PAYLOAD),
    ),
)

#: `Order`, likewise; without a payload its rows are mappings.
ORDERS = TableSpec(
    name="orders",
    columns=(
        ColumnSpec(field="id", type=int, role=Role.ID, generated=True),
        ColumnSpec(field="attempt", type=int, role=Role.ATTEMPT),
        ColumnSpec(field="locked_until", type=datetime, optional=True, role=Role.LEASE),
        ColumnSpec(field="placed_at", type=datetime),
        ColumnSpec(field="number", type=str),
        ColumnSpec(field="note", type=str, optional=True, default=None),
        ColumnSpec(field="error", type=str, optional=True, role=Role.ERROR),
    ),
)

#: `Order` as a class, by each strategy.
ORDER_BY = {LEASE: Order, ROW_LOCK: LockedOrder, ADVISORY_LOCK: KeyLockedOrder}

PLACED = datetime.fromisoformat("2029-12-31T23:59:59.123456+00:00")


def _working_with(queue: Queue, mine: threading.Event, other: threading.Event) -> list[Any]:
    """Registers a handler that remembers its rows, and at its first waits until the `other` one is at work as well."""
    handled: list[Any] = []

    @queue.handler(workers=4, prefetch=8)
    def work(message: Any, delivery: Delivery) -> None:
        mine.set()
        assert other.wait(LIMIT)
        handled.append(delivery.id)

    return handled


class ClaimsContract(Contract):
    """Every row goes to one handler, in the form that its declaration says."""

    def test_two_consumers_that_work_side_by_side_share_all_rows_and_hold_none_in_the_end(
        self, database: Database, open_broker: OpenBroker, strategy: str, stranger: Stranger, recorder: Recorder
    ) -> None:
        """SUITE 1"""
        brokers = [open_broker(), open_broker()]
        first, second = (created(broker, held_by(strategy, KeptJob)) for broker in brokers)
        begun = [threading.Event(), threading.Event()]
        handled = [_working_with(first, *begun), _working_with(second, *reversed(begun))]
        first.enqueue_many(range(200))
        with Consumer(brokers[0], observers=[recorder]), Consumer(brokers[1], observers=[recorder]):
            recorder.wait_for("acknowledged", count=200)
        ids = [id for (id,) in shown(database, first, "id")]
        assert (200, ids) == (len(ids), sorted(handled[0] + handled[1]))
        assert handled[0]
        assert handled[1]
        check_unheld(database, first, stranger)
        assert None not in {done for (done,) in shown(database, first, "done_at")}

    def test_a_second_handler_of_a_queue_is_refused_with_the_names_of_both(self, broker: Broker) -> None:
        """SUITE 11"""
        queue = broker.queue(Job)
        assert queue is broker.queue(Job)

        @queue.handler
        def first(message: Any) -> None: ...

        with pytest.raises(DeclarationError, match=r"jobs.*second.*first"):

            @queue.handler
            def second(message: Any) -> None: ...

    def test_a_second_handler_of_a_table_is_refused_under_whatever_description(self, broker: Broker) -> None:
        """SUITE 11"""
        broker.queue(CountedJob).handler(lambda message: None)
        with pytest.raises(DeclarationError, match="counted_jobs"):
            broker.queue(COUNTED).handler(lambda message: None)

    def test_a_table_described_by_hand_has_the_statements_of_its_class(self, broker: Broker) -> None:
        """SUITE 12"""
        by_hand, by_class = (created(broker, declared) for declared in (COUNTED, CountedJob))
        assert list(Holder(by_hand).lease.statements()) == list(Holder(by_class).lease.statements())

    def test_a_row_of_a_table_described_by_hand_arrives_as_a_mapping_and_is_settled(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        """SUITE 12"""
        queue = created(broker, held_by(strategy, ORDERS), clock)
        seen = []

        @queue.handler
        def work(row: dict[str, Any], delivery: Delivery) -> None:
            seen.append((row, delivery.id, delivery.attempt))

        id = queue.enqueue({"placed_at": PLACED, "number": "A-17"})
        drain(broker)
        row = {
            "id": id,
            "attempt": 1,
            "placed_at": PLACED,
            "number": "A-17",
            "note": None,
            "error": None,
        }
        row |= {"locked_until": clock.now() + timedelta(seconds=30)} if strategy == LEASE else {}
        assert [(row, id, 1)] == seen
        assert shown(database, queue, "id") == []

    def test_a_row_of_a_class_arrives_whole_with_its_generated_id(
        self, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        """SUITE 173, SUITE 27: the row shows its attempt and its lease as they were claimed."""
        queue = created(broker, ORDER_BY[strategy], clock)
        seen: list[Any] = []

        @queue.handler
        def work(order: Any) -> None:
            seen.append(order)

        id = queue.enqueue(ORDER_BY[strategy](placed_at=PLACED, number="A-17", note="fragile"))
        drain(broker)
        (order,) = seen
        assert (id, PLACED, "A-17", "fragile") == (order.id, order.placed_at, order.number, order.note)
        assert order.attempt == 1
        if strategy == LEASE:
            assert order.locked_until == clock.now() + timedelta(seconds=30)

    def test_a_row_keeps_its_given_fields_and_the_database_fills_in_the_generated_ones(
        self, database: Database, broker: Broker
    ) -> None:
        """SUITE 14"""
        columns = [attrs.evolve(one, generated=one.role in (Role.ID, Role.ATTEMPT)) for one in COUNTED.columns]
        queue = created(broker, TableSpec(name="counted_jobs", columns=columns, row_class=CountedJob))
        due = START + timedelta(days=1)
        id = queue.enqueue(CountedJob(due_at=due, attempt=7, payload='"x"'))
        assert [(id, due, 0, None, '"x"')] == shown(
            database, queue, "id", "due_at", "attempt", "locked_until", "payload"
        )

    @pytest.mark.parametrize("payload", [b"\x00\xff\n\r\\'\"\x80", b""], ids=["every sign", "empty"])
    def test_bytes_arrive_as_they_were_enqueued_and_empty_ones_are_not_missing(
        self, broker: Broker, strategy: str, payload: bytes
    ) -> None:
        """SUITE 16, SUITE 17"""
        queue = created(broker, held_by(strategy, RawJob))
        seen = []

        @queue.handler
        def work(message: bytes) -> None:
            seen.append(message)

        queue.enqueue(payload)
        drain(broker)
        assert [payload] == seen

    def test_a_missing_payload_is_none_to_a_handler_that_takes_none(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """SUITE 17"""
        queue = created(broker, held_by(strategy, KeptJob))
        seen: list[Any] = []

        @queue.handler
        def work(message: int | None) -> None:
            seen.append(message)

        database.execute("INSERT INTO kept_jobs (payload) VALUES (NULL)")
        queue.enqueue(7)
        drain(broker)
        assert seen == [None, 7]

    def test_the_first_delivery_is_attempt_1_and_a_missing_count_counts_as_0(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """SUITE 27"""
        queue = created(broker, held_by(strategy, KeptJob))
        seen = []

        @queue.handler
        def work(message: Any, delivery: Delivery) -> None:
            seen.append((message, delivery.attempt))

        for attempt in (None, 0, 4):
            database.execute("INSERT INTO kept_jobs (payload, attempt) VALUES ('1', ?)", attempt)
        drain(broker)
        assert seen == [(1, 1), (1, 1), (1, 5)]

    def test_a_table_that_does_not_count_has_no_attempt_to_show(self, broker: Broker, strategy: str) -> None:
        queue = created(broker, held_by(strategy, Job))
        seen = []

        @queue.handler
        def work(message: Any, delivery: Delivery) -> None:
            seen.append(delivery.attempt)

        queue.enqueue(1)
        drain(broker)
        assert seen == [None]

    def test_headers_arrive_with_their_row_and_none_are_an_empty_mapping(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """SUITE 177"""
        queue = created(broker, held_by(strategy, KeptJob))
        seen = []

        @queue.handler
        def work(message: Any, delivery: Delivery) -> None:
            seen.append(dict(delivery.headers))

        queue.enqueue(1, headers={"trace": "a", "size": 3})
        database.execute("INSERT INTO kept_jobs (payload) VALUES ('2')")
        drain(broker)
        assert seen == [{"trace": "a", "size": "3"}, {}]
