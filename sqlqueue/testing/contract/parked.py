"""Parked rows: people look at them, and put them back to work with a fresh count."""

from datetime import datetime
from typing import Any
from uuid import UUID

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.errors import DeclarationError
from sqlqueue.inspect import ParkedRow
from sqlqueue.queue import Queue
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, created, shown
from sqlqueue.testing.contract.holding import held_by
from sqlqueue.testing.contract.tables import CountedJob, FullJob, KeptJob, Order
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder


@attrs.frozen
class Invoice:
    number: str


def parked_rows(broker: Broker, declared: Any, count: int, clock: ManualClock | None = None) -> tuple[Queue, list[Any]]:
    """A queue whose handler has parked so many rows, after two attempts each, and their ids."""
    queue = created(broker, declared, clock)

    @queue.handler(max_attempts=2, retry=0)
    def work(message: Any) -> None:
        raise RuntimeError("broken")

    ids = [queue.enqueue(number) for number in range(count)]
    drain(broker)
    if clock is not None:
        clock.advance(1)
        drain(broker)
    return queue, ids


def with_ids(kind: type) -> TableSpec:
    """A table that parks rows under ids of this type, which their writers give them."""
    columns = [
        ColumnSpec(field="id", type=kind, role=Role.ID),
        ColumnSpec(field="locked_until", type=datetime, optional=True, role=Role.LEASE),
        ColumnSpec(field="error", type=str, optional=True, role=Role.ERROR),
    ]
    return TableSpec(name="named_rows", columns=tuple(columns))


class ParkedContract(Contract):
    """Parked rows stay until somebody puts them back."""

    def test_they_are_listed_with_what_there_is_to_know(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        queue = created(broker, held_by(strategy, FullJob), clock, group="mail")

        @queue.handler(retry=None)
        def work(invoice: Invoice) -> None:
            raise RuntimeError("broken")

        first = queue.enqueue(Invoice("A-17"), key="A")
        unreadable = queue.enqueue({"nr": 7})
        queue.enqueue(Invoice("later"), delay=60)
        drain(broker)
        shown, hidden = queue.parked()
        assert shown == ParkedRow(
            id=first, key="A", group="mail", attempts=1, error="RuntimeError: broken", message=Invoice("A-17")
        )
        assert (hidden.id, hidden.key, hidden.attempts, hidden.message) == (unreadable, None, 1, None)
        assert "Invoice" in hidden.error

    def test_the_first_by_id_are_listed_up_to_a_limit(self, broker: Broker, strategy: str, clock: ManualClock) -> None:
        queue, ids = parked_rows(broker, held_by(strategy, KeptJob), 3, clock)
        assert [row.id for row in queue.parked(limit=2)] == ids[:2]
        assert [(row.message, row.attempts) for row in queue.parked()] == [(0, 2), (1, 2), (2, 2)]

    def test_without_a_handler_messages_are_what_the_codec_makes_of_them(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """By an operator's program, which has none."""
        queue = created(broker, held_by(strategy, KeptJob))
        payload = '{"number": "A-17"}'
        database.execute("INSERT INTO kept_jobs (payload, attempt, error) VALUES (?, NULL, 'no')", payload)
        (row,) = queue.parked()
        assert (row.message, row.attempts, row.error) == ({"number": "A-17"}, None, "no")

    def test_rows_of_another_group_are_none_of_the_queues(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        queue = created(broker, held_by(strategy, FullJob), group="mail")
        others = broker.queue(queue.spec, group="others")
        for one in (queue, others):
            one.enqueue("x")
        database.execute("UPDATE full_jobs SET error = 'no'")
        assert [row.group for row in queue.parked()] == ["mail"]
        assert queue.requeue() == 1
        assert [row.group for row in others.parked()] == ["others"]

    def test_a_row_without_a_payload_is_shown_whole(
        self, database: Database, broker: Broker, clock: ManualClock
    ) -> None:
        queue = created(broker, Order)
        id = queue.enqueue(Order(placed_at=clock.now(), number="A-17"))
        database.execute("UPDATE orders SET error = 'no'")
        (row,) = queue.parked()
        assert isinstance(row.message, Order)
        assert (row.message.id, row.message.number, row.message.error) == (id, "A-17", "no")

    def test_those_that_are_put_back_start_a_fresh_count(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        """Whatever the strategy tells a cleared error by."""
        queue = created(broker, held_by(strategy, KeptJob), clock)
        attempts: list[Any] = []

        @queue.handler(max_attempts=2, retry=0.5)
        def work(message: Any, delivery: Delivery) -> None:
            attempts.append((message, delivery.attempt))
            raise RuntimeError("broken")

        one, other = queue.enqueue("one"), queue.enqueue("other")
        for _ in range(2):
            drain(broker)
            clock.advance(1)
        assert queue.requeue([other]) == 1
        assert [row.id for row in queue.parked()] == [one]
        assert shown(database, queue, "attempt")[1] == (0,)
        for _ in range(2):
            drain(broker)
            clock.advance(1)
        assert attempts[4:] == [("other", 1), ("other", 2)]
        assert [row.id for row in queue.parked()] == [one, other]

    def test_all_of_them_go_back_where_no_ids_are_named(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        queue, _ = parked_rows(broker, held_by(strategy, KeptJob), 3, clock)
        assert (queue.requeue(), queue.requeue(), queue.parked()) == (3, 0, [])
        assert shown(database, queue, "error", "attempt", "done_at") == [(None, 0, None)] * 3

    def test_only_parked_rows_go_back(self, database: Database, broker: Broker, strategy: str) -> None:
        """Not one that is done, waits, or is not there at all."""
        queue = created(broker, held_by(strategy, KeptJob))
        done, waiting = queue.enqueue("x"), queue.enqueue("y", delay=60)
        queue.handler(lambda message: None)
        drain(broker)
        before = shown(database, queue, "id", "due_at", "attempt", "done_at")
        assert (queue.requeue([done, waiting, 999]), queue.requeue([]), queue.requeue()) == (0, 0, 0)
        assert shown(database, queue, "id", "due_at", "attempt", "done_at") == before

    def test_in_the_callers_transaction_they_go_back_when_that_commits(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        queue, ids = parked_rows(broker, held_by(strategy, KeptJob), 2, clock)
        connection = database.connect()
        connection.execute("BEGIN")
        assert queue.requeue(ids[:1], connection=connection) == 1
        connection.execute("ROLLBACK")
        assert [row.id for row in queue.parked()] == ids
        connection.execute("BEGIN")
        assert queue.requeue(connection=connection) == 2
        connection.execute("COMMIT")
        assert queue.parked() == []

    def test_an_idle_consumer_is_woken(
        self, database: Database, broker: Broker, strategy: str, recorder: Recorder
    ) -> None:
        queue = created(broker, held_by(strategy, KeptJob))
        queue.handler(lambda message: None)
        database.execute("INSERT INTO kept_jobs (payload, error) VALUES ('1', 'no')")
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("looked")
            assert queue.requeue() == 1
            recorder.wait_for("acknowledged")

    def test_a_table_without_a_column_to_park_them_in_has_none(self, broker: Broker, strategy: str) -> None:
        queue = created(broker, held_by(strategy, CountedJob))
        for ask in (queue.parked, queue.requeue):
            with pytest.raises(DeclarationError, match=r"queue counted_jobs: its table parks no rows; mark a column"):
                ask()

    def test_one_id_or_what_parked_returned_will_do(self, broker: Broker, strategy: str, clock: ManualClock) -> None:
        queue, ids = parked_rows(broker, held_by(strategy, KeptJob), 4, clock)
        _, second, third, _ = queue.parked()
        assert (queue.requeue(ids[0]), queue.requeue(second), queue.requeue([third, ids[3]])) == (1, 1, 2)
        assert queue.parked() == []

    @pytest.mark.parametrize(
        ("kind", "right", "wrong"),
        [
            (str, "a", [7, b"a"]),
            (UUID, UUID(int=7), ["a", 7, b"a"]),
            (bytes, b"\x00a", ["a", 7]),
            (int, 7, ["a", "7", b"a", True, 1.5]),
        ],
        ids=lambda value: getattr(value, "__name__", ""),
    )
    def test_an_id_of_another_type_is_refused_by_one_error(
        self, broker: Broker, kind: type, right: Any, wrong: list[Any]
    ) -> None:
        queue = created(broker, with_ids(kind))
        queue.enqueue({"id": right, "error": "no"})
        for id in wrong:
            for given in (id, [id], [right, id]):
                with pytest.raises(ValueError, match=f"is no id of its rows, which is {kind.__name__}; give one"):
                    queue.requeue(given)
        assert (queue.requeue(right), queue.parked()) == (1, [])

    def test_a_uuid_may_be_given_as_text(self, broker: Broker) -> None:
        queue = created(broker, with_ids(UUID))
        queue.enqueue({"id": UUID(int=7), "error": "no"})
        assert queue.requeue(str(UUID(int=7)).upper()) == 1

    @pytest.mark.parametrize("limit", [-1, 1.5, True, "3", None, 10**30])
    def test_a_limit_that_counts_nothing_is_refused(self, broker: Broker, limit: Any) -> None:
        with pytest.raises(ValueError, match="limit is "):
            created(broker, KeptJob).parked(limit=limit)
