"""Enqueue: rows by our own API, by other programs, and inside the caller's transaction."""

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from sqlqueue import column
from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.dialect import Trouble
from sqlqueue.errors import BrokerClosed, DeclarationError, EncodeError
from sqlqueue.table import table
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, created, shown
from sqlqueue.testing.contract.holding import held_by
from sqlqueue.testing.contract.tables import CountedJob, FullJob, Job, KeptJob, NamedJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder


@table("uuid_jobs")
class UuidJob:
    id: UUID = column.id()
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()


@table("bytes_jobs")
class BytesJob:
    id: bytes = column.id()
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()


IDS = [
    pytest.param(NamedJob, "A-17", id="str"),
    pytest.param(UuidJob, UUID("8f14e45f-ceea-467f-a0e6-0d8b1c2c3d4e"), id="uuid"),
    pytest.param(BytesJob, b"\x00\xff", id="bytes"),
]


class EnqueueContract(Contract):
    """A row is the message: whoever writes it, and in whatever transaction."""

    def test_an_enqueued_row_holds_what_was_given_and_its_id_is_returned(
        self, database: Database, broker: Broker, clock: ManualClock
    ) -> None:
        queue = created(broker, FullJob, clock, group="mail")
        at = datetime(2030, 5, 1, 12, 30, 15, 123456, tzinfo=timezone(timedelta(hours=2)))
        id = queue.enqueue({"n": 1}, key="acme", headers={"trace": "t", "size": 3}, priority=-2, at=at)
        row = (id, "mail", -2, "acme", at, 0, None, None, {"trace": "t", "size": "3"}, '{"n":1}', None, False)
        assert [row] == shown(database, queue, *(spec.field for spec in queue.spec.columns))

    @pytest.mark.parametrize(("declared", "id"), IDS)
    def test_a_row_that_names_its_id_is_claimed_and_settled_by_it(
        self, database: Database, broker: Broker, strategy: str, declared: type, id: Any
    ) -> None:
        producer, queue = created(broker, declared), broker.queue(held_by(strategy, declared))
        seen = []

        @queue.handler
        def work(message: Any, delivery: Delivery) -> None:
            seen.append((message, delivery.id))

        assert id == producer.enqueue(declared(id=id, payload="1"))
        drain(broker)
        assert [(1, id)] == seen
        assert shown(database, queue, "id") == []

    def test_rows_that_another_program_inserts_are_handled_as_ours_are(
        self, database: Database, broker: Broker, strategy: str, recorder: Recorder
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob))
        seen = []

        @queue.handler
        def work(message: Any, delivery: Delivery) -> None:
            seen.append((message, delivery.attempt))

        for number in range(3):
            database.execute("INSERT INTO counted_jobs (payload) VALUES (?)", f'{{"n": {number}}}')
        with Consumer(broker, observers=[recorder]):
            recorder.wait_for("acknowledged", count=3)
        assert [({"n": number}, 1) for number in range(3)] == seen

    def test_many_rows_are_inserted_in_order_and_counted(self, database: Database, broker: Broker) -> None:
        queue = created(broker, Job)
        assert queue.enqueue_many(iter(range(1000))) == 1000
        assert queue.enqueue_many([]) == 0
        assert [(str(number),) for number in range(1000)] == shown(database, queue, "payload")

    def test_of_many_rows_all_are_inserted_or_none(self, database: Database, broker: Broker) -> None:
        queue = created(broker, NamedJob)
        queue.enqueue(NamedJob(id="2", payload="1"))
        with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
            queue.enqueue_many(NamedJob(id=str(number), payload="1") for number in range(4))
        assert shown(database, queue, "id") == [("2",)]
        with pytest.raises(EncodeError):
            queue.enqueue_many([NamedJob(id="0", payload="1"), object()])
        assert shown(database, queue, "id") == [("2",)]

    def test_who_makes_many_rows_may_use_the_queue_meanwhile_and_fail(self, database: Database, broker: Broker) -> None:
        queue = created(broker, Job)

        def rows(last: Any) -> Iterator[Any]:
            yield 1
            queue.enqueue("between")
            yield last

        with pytest.raises(EncodeError):
            queue.enqueue_many(rows(object()))
        assert shown(database, queue, "payload") == [('"between"',)]
        assert queue.enqueue_many(rows(2)) == 2
        assert sorted(shown(database, queue, "payload")) == [('"between"',), ('"between"',), ("1",), ("2",)]

    @pytest.mark.parametrize("message", ["abc", b"abc", {"a": 1}], ids=["text", "bytes", "mapping"])
    def test_one_message_is_not_many(self, database: Database, broker: Broker, message: Any) -> None:
        queue = created(broker, Job)
        with pytest.raises(ValueError, match="which is one message; give a list of messages, or enqueue it"):
            queue.enqueue_many(message)
        assert shown(database, queue, "id") == []

    def test_a_row_in_the_callers_transaction_is_seen_by_nobody_before_its_commit(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        queue = created(broker, held_by(strategy, Job))
        handled: list[Any] = []
        queue.handler(handled.append)
        ours = database.connect()
        ours.execute("BEGIN")
        id = queue.enqueue("x", connection=ours)
        assert shown(database, queue, "id") == []
        ours.execute("COMMIT")
        assert [(id,)] == shown(database, queue, "id")
        drain(broker)
        assert handled == ["x"]

    def test_rows_in_the_callers_transaction_go_with_its_rollback(self, database: Database, broker: Broker) -> None:
        queue = created(broker, Job)
        ours = database.connect()
        ours.execute("BEGIN")
        queue.enqueue("x", connection=ours)
        assert queue.enqueue_many(range(3), connection=ours) == 3
        assert [tuple(row) for row in ours.execute("SELECT count(*) FROM jobs").fetchall()] == [(4,)]
        ours.execute("ROLLBACK")
        assert shown(database, queue, "id") == []

    def test_outside_of_a_transaction_the_row_is_committed_as_the_callers_own_statements_are(
        self, database: Database, broker: Broker
    ) -> None:
        queue = created(broker, Job)
        ours = database.connect()
        queue.enqueue("x", connection=ours)
        queue.enqueue_many(["y", "z"], connection=ours)
        assert shown(database, queue, "payload") == [('"x"',), ('"y"',), ('"z"',)]
        ours.execute("BEGIN")
        ours.execute("ROLLBACK")

    def test_a_duplicate_that_is_ignored_leaves_the_callers_transaction_usable(
        self, database: Database, broker: Broker
    ) -> None:
        """PAINS 32"""
        queue = created(broker, NamedJob)
        queue.enqueue(NamedJob(id="1", payload="1"))
        ours = database.connect()
        ours.execute("BEGIN")
        ours.execute("INSERT INTO named_jobs (id, payload) VALUES ('2', '2')")
        assert None is queue.enqueue(NamedJob(id="1", payload="3"), on_conflict="ignore", connection=ours)
        assert queue.enqueue(NamedJob(id="4", payload="4"), on_conflict="ignore", connection=ours) == "4"
        ours.execute("COMMIT")
        assert shown(database, queue, "id", "payload") == [("1", "1"), ("2", "2"), ("4", "4")]

    def test_a_duplicate_is_the_drivers_own_error_and_its_row_is_not_written(
        self, database: Database, broker: Broker
    ) -> None:
        queue = created(broker, NamedJob)
        queue.enqueue(NamedJob(id="1", payload="1"))
        with pytest.raises(Exception, match=r"(?i)unique|duplicate") as caught:
            queue.enqueue(NamedJob(id="1", payload="2"))
        assert Trouble.PERMANENT is broker.dialect.classify(caught.value)
        assert shown(database, queue, "id", "payload") == [("1", "1")]
        assert None is queue.enqueue(NamedJob(id="1", payload="2"), on_conflict="ignore")

    @pytest.mark.parametrize(
        ("options", "error"),
        [
            pytest.param({"delay": -1}, ValueError, id="a negative delay"),
            pytest.param({"delay": 1e12}, ValueError, id="a delay past all years"),
            pytest.param({"at": datetime(2030, 1, 1)}, ValueError, id="a naive moment"),  # noqa: DTZ001
            pytest.param({"headers": {"trace": None}}, EncodeError, id="a header without a value"),
            pytest.param({"key": "acme"}, DeclarationError, id="a key without a column"),
            pytest.param({"priority": 1}, DeclarationError, id="a priority without a column"),
            pytest.param({"on_conflict": "replace"}, ValueError, id="an unknown way out of a conflict"),
            pytest.param({"connection": object()}, DeclarationError, id="no connection"),
        ],
    )
    def test_what_cannot_be_stored_is_refused_and_nothing_is_written(
        self, database: Database, broker: Broker, options: dict[str, Any], error: type[Exception]
    ) -> None:
        queue = created(broker, KeptJob)
        with pytest.raises(error):
            queue.enqueue("x", **options)
        with pytest.raises(EncodeError):
            queue.enqueue(object())
        assert shown(database, queue, "id") == []

    def test_headers_for_a_table_without_them_are_refused_and_nothing_is_written(
        self, database: Database, broker: Broker
    ) -> None:
        """SUITE 179"""
        queue = created(broker, CountedJob)
        with pytest.raises(DeclarationError, match="headers"):
            queue.enqueue("x", headers={"trace": "t"})
        assert shown(database, queue, "id") == []

    def test_a_closed_broker_refuses_rows_even_in_the_callers_transaction(
        self, database: Database, broker: Broker
    ) -> None:
        """SUITE 153"""
        queue = created(broker, Job)
        ours = database.connect()
        broker.close()
        for options in ({}, {"connection": ours}):
            with pytest.raises(BrokerClosed):
                queue.enqueue("x", **options)
            with pytest.raises(BrokerClosed):
                queue.enqueue_many(["x"], **options)
        assert shown(database, queue, "id") == []

    def test_ids_that_the_database_makes_grow(self, database: Database, broker: Broker) -> None:
        """Also after the newest rows are gone: order by id is the order of arrival."""
        queue = created(broker, Job)
        first, second = queue.enqueue(1), queue.enqueue(2)
        database.execute("DELETE FROM jobs WHERE id = ?", second)
        third = queue.enqueue(3)
        assert [first, second, third] == sorted({first, second, third})
