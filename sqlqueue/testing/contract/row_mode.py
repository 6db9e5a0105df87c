"""Row mode: the handler takes the row as the table holds it, its headers too."""

import json
from datetime import datetime
from enum import Enum, IntEnum
from typing import Any

import attrs
import pytest

from sqlqueue import column
from sqlqueue.broker import Broker
from sqlqueue.delivery import Delivery
from sqlqueue.errors import EncodeError
from sqlqueue.outcome import Retry
from sqlqueue.spec import spec_of
from sqlqueue.table import table
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, created, shown
from sqlqueue.testing.contract.holding import held_by
from sqlqueue.testing.contract.tables import KeptJob, NotedOrder, Order
from sqlqueue.testing.drain import drain

#: Their headers as an object, where the database has such a type.
NOTED = attrs.evolve(
    spec_of(NotedOrder),
    row_class=None,
    columns=[
        attrs.evolve(one, type=dict[str, str]) if one.field == "notes" else one for one in spec_of(NotedOrder).columns
    ],
)


class Mood(str, Enum):
    CALM = "calm"
    LOUD = "loud"


class Level(IntEnum):
    LOW = 1
    HIGH = 9


@table("typed_rows")
class TypedRow:
    """Plain types, and those that are made of them."""

    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    mood: Mood = Mood.CALM
    level: Level | None = None
    ratio: float = 1.0
    error: str | None = column.error()


@table("fielded_rows")
class FieldedRow:
    """What attrs can do with a field, all of it."""

    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    named: str = attrs.field(alias="called", default="x")
    _hidden: str = "y"
    counted: int = attrs.field(init=False, default=3)
    later: int = attrs.field(init=False)
    made: str = attrs.field(default=attrs.Factory(lambda self: self.named * 2, takes_self=True))


class RowModeContract(Contract):
    """Nothing that the table holds is hidden from the handler."""

    def test_headers_stay_in_the_row_and_are_the_deliverys_as_well(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """SUITE 178"""
        queue = created(broker, held_by(strategy, NOTED))
        seen: list[Any] = []

        @queue.handler
        def work(order: dict[str, Any], delivery: Delivery) -> None:
            seen.append((order["number"], order["notes"], dict(delivery.headers)))

        queue.enqueue({"number": "A-17"}, headers={"trace": "7"})
        queue.enqueue({"number": "A-18", "notes": {"trace": "8"}})
        database.execute("INSERT INTO noted_orders (number) VALUES ('A-19')")
        drain(broker)
        assert seen == [
            ("A-17", {"trace": "7"}, {"trace": "7"}),
            ("A-18", {"trace": "8"}, {"trace": "8"}),
            ("A-19", None, {}),
        ]

    def test_headers_in_a_column_of_text_are_the_same(self, database: Database, broker: Broker) -> None:
        queue = created(broker, NotedOrder)
        seen: list[Any] = []

        @queue.handler
        def work(order: NotedOrder, delivery: Delivery) -> None:
            seen.append(dict(delivery.headers))

        queue.enqueue(NotedOrder(number="A-17"), headers={"trace": "7", "size": 3})
        queue.enqueue(NotedOrder(number="A-18", notes=json.dumps({"trace": "8"})))
        assert [json.loads(notes) for (notes,) in database.execute("SELECT notes FROM noted_orders ORDER BY id")] == [
            {"trace": "7", "size": "3"},
            {"trace": "8"},
        ]
        drain(broker)
        assert seen == [{"trace": "7", "size": "3"}, {"trace": "8"}]

    def test_values_come_in_their_declared_types(self, broker: Broker) -> None:
        queue = created(broker, TypedRow)
        seen: list[TypedRow] = []
        queue.handler(seen.append)
        queue.enqueue(TypedRow(mood=Mood.LOUD, level=Level.HIGH, ratio=2))
        queue.enqueue(TypedRow())
        drain(broker)
        found = [(row.mood, row.level, row.ratio) for row in seen]
        assert found == [(Mood.LOUD, Level.HIGH, 2.0), (Mood.CALM, None, 1.0)]
        assert [[type(value) for value in row] for row in found] == [[Mood, Level, float], [Mood, type(None), float]]

    def test_fields_of_every_kind_come_back_as_they_went(self, database: Database, broker: Broker) -> None:
        queue = created(broker, FieldedRow)
        seen: list[Any] = []
        queue.handler(lambda row: seen.append(row))
        make: Any = FieldedRow  # by its aliases, which type checkers do not know all
        row = make(called="abc", hidden="z")
        with pytest.raises(EncodeError, match="the row has no value for 'later'"):
            queue.enqueue(row)
        row.later = 9
        queue.enqueue(row)
        database.execute("UPDATE fielded_rows SET counted = 4")
        drain(broker)
        found = [(one.named, one._hidden, one.counted, one.later, one.made) for one in seen]
        assert found == [("abc", "z", 4, 9, "abcabc")]

    def test_a_value_that_does_not_fit_goes_by_the_decode_policy(self, database: Database, broker: Broker) -> None:
        queue = created(broker, TypedRow)
        seen: list[Any] = []
        queue.handler(seen.append)
        database.execute("INSERT INTO typed_rows (mood, level, ratio) VALUES ('sad', 1, 1)")
        database.execute("INSERT INTO typed_rows (mood, level, ratio) VALUES ('calm', 2, 1)")
        database.execute("INSERT INTO typed_rows (mood, level, ratio) VALUES ('calm', 1, 1)")
        drain(broker)
        assert [(row.mood, row.level) for row in seen] == [(Mood.CALM, Level.LOW)]
        errors = [error for (error,) in database.execute("SELECT error FROM typed_rows ORDER BY id")]
        assert ["'mood' holds 'sad'" in errors[0], "'level' holds 2" in errors[1]] == [True, True]

    def test_columns_that_the_declaration_does_not_name_are_left_alone_and_null_is_none(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """SUITE 173: the table may hold more than the queue knows of."""
        whole = spec_of(Order)
        created(broker, held_by(strategy, whole))
        less = [one for one in whole.columns if one.field != "placed_at"]
        queue = broker.queue(held_by(strategy, attrs.evolve(whole, columns=less, row_class=None)))
        seen: list[Any] = []

        @queue.handler(retry=0)
        def work(order: dict[str, Any]) -> Retry | None:
            seen.append((order["number"], order["note"], "placed_at" in order))
            return None

        database.execute("INSERT INTO orders (placed_at, number) VALUES ('2029-12-31 12:00:00+00:00', 'A-17')")
        drain(broker)
        assert seen == [("A-17", None, False)]

    def test_a_count_that_begins_at_one_has_one_delivery_less(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        """SUITE 92: another system's column counts from 1, ours from 0."""
        queue = created(broker, held_by(strategy, KeptJob), clock)
        attempts: list[Any] = []

        @queue.handler(max_attempts=3, retry=0)
        def work(message: Any, delivery: Delivery) -> None:
            attempts.append(delivery.attempt)
            raise RuntimeError("broken")

        database.execute("INSERT INTO kept_jobs (payload, attempt) VALUES ('1', 1)")
        for _ in range(4):
            drain(broker)
            clock.advance(1)
        assert attempts == [2, 3]
        ((error,),) = shown(database, queue, "error")
        assert error == "RuntimeError: broken"
