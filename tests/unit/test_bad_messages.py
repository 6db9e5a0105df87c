"""What a producer is told who hands over something that cannot be stored: what was given, and how to mend it."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import attrs
import pytest

from sqlqueue import Broker, DialectNotFound, Drop, EncodeError, Queue, SQLQueueError, column, table
from sqlqueue.consumer import Consumer
from sqlqueue.errors import DeclarationError


@table("jobs")
class Job:
    id: int = column.id(generated=True)
    shop: str = column.group()
    urgency: int = column.priority()
    due_at: datetime = column.retry_after()
    locked_until: datetime | None = column.lease()
    notes: dict[str, str] = column.headers()
    payload: bytes = column.payload()


@table("others")
class Other:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()


@attrs.frozen
class Invoice:
    number: str
    sent_at: datetime


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker("sqlite://") as broker:
        broker.queue(Job)
        broker.create_tables()
        yield broker


@pytest.fixture
def queue(broker: Broker) -> Queue:
    return broker.queue(Job, group="north")


def test_a_message_whose_fields_are_not_what_they_declare_is_refused_by_its_type(queue: Queue) -> None:
    with pytest.raises(EncodeError, match="Invoice cannot be stored as JSON"):
        queue.enqueue(Invoice("A-17", sent_at=None))  # type: ignore[arg-type]


def test_the_row_of_another_table_is_refused_and_sent_to_its_own_queue(queue: Queue) -> None:
    with pytest.raises(EncodeError, match="Other is the row of another table, 'others'; enqueue it to a queue of that"):
        queue.enqueue(Other(payload=b"1"))


def test_a_priority_that_is_no_number_is_refused_where_sqlite_would_store_it(queue: Queue) -> None:
    with pytest.raises(EncodeError, match="priority is 'high'; give a number"):
        queue.enqueue(1, priority="high")  # type: ignore[arg-type]


def test_a_message_for_no_group_is_told_how_to_name_one(broker: Broker) -> None:
    with pytest.raises(EncodeError, match=r"the row has no group; enqueue it to the queue of one.*group="):
        broker.queue(Job).enqueue(1)


def test_a_row_that_leaves_out_when_it_is_due_and_its_headers_is_due_now_and_has_none(queue: Queue) -> None:
    """The columns take no NULL, and neither the row nor the declaration names a value."""
    handled: list[object] = []
    queue.handler(lambda message, delivery: handled.append((message, dict(delivery.headers))))
    queue.enqueue(Job(shop="north", payload=b"1"))
    queue.enqueue(2)
    Consumer(queue.broker).run_until_idle(10)
    assert handled == [(1, {}), (2, {})]


def test_headers_that_are_no_mapping_are_refused(queue: Queue) -> None:
    with pytest.raises(EncodeError, match=r"headers are \['a'\]; give a mapping"):
        queue.enqueue(1, headers=["a"])  # type: ignore[arg-type]


def test_a_handler_whose_message_the_codec_cannot_make_is_refused_where_it_is_declared(queue: Queue) -> None:
    class Plain:
        pass

    def take(message: Plain) -> None: ...

    with pytest.raises(DeclarationError, match=r"annotated as .*Plain cannot be decoded.*such as a dataclass"):
        queue.handler(take)
    assert queue.registered is None


def test_a_codec_that_is_none_is_refused_before_anything_is_stored() -> None:
    with pytest.raises(DeclarationError, match="is no codec; give an object with encode"):
        Broker("sqlite://", codec=json)  # type: ignore[arg-type]


def test_a_table_without_its_name_is_told_how_to_give_one() -> None:
    with pytest.raises(DeclarationError, match=r"give the table's name: @table\('its_name'\)"):

        @table  # type: ignore[arg-type]
        class Unnamed:
            id: int = column.id()


@pytest.mark.parametrize("source", [None, Path("shop.db"), b"sqlite://"])
def test_a_source_that_is_neither_url_nor_pool_is_refused_by_its_type(source: object) -> None:
    with pytest.raises(DialectNotFound, match=f"{type(source).__qualname__}, which should be a URL as text or a"):
        Broker(source)


def test_one_queue_may_be_named_without_a_list_and_a_wrong_name_is_told_the_right_ones(queue: Queue) -> None:
    queue.handler(lambda message: None)
    with Consumer(queue.broker, queues="jobs[north]") as consumer:
        assert [one.name for one in consumer.health().queues] == ["jobs[north]"]
    with pytest.raises(DeclarationError, match=r"queues='job' is no queue of .* which has: jobs, jobs\[north\]"):
        Consumer(queue.broker, queues="job").start()


def test_a_consumer_that_runs_says_so_when_it_is_started_again(queue: Queue) -> None:
    queue.handler(lambda message: None)
    with Consumer(queue.broker) as consumer, pytest.raises(SQLQueueError, match="is running: it can be started when"):
        consumer.start()


def test_a_row_that_its_handler_drops_is_named_in_the_log_with_the_reason(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """SPEC 5: a drop finishes the row as an acknowledgement does, logged."""
    queue.handler(lambda reason: Drop(reason))
    queue.enqueue_many(["nobody waits for it", None])
    with caplog.at_level("INFO", "sqlqueue"):
        Consumer(queue.broker).run_until_idle(10)
    assert [record.getMessage() for record in caplog.records if "dropped" in record.getMessage()] == [
        "queue jobs[north]: row 1 was dropped by its handler: nobody waits for it",
        "queue jobs[north]: row 2 was dropped by its handler: it gave no reason",
    ]
