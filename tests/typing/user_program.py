"""A program as users write it, under `mypy --strict`: what they may say must pass, and nothing needs an ignore."""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar
from uuid import UUID, uuid4

import attrs

from sqlqueue import (
    Broker,
    Clock,
    Codec,
    ColumnSpec,
    Consumer,
    DeadLetter,
    Delivery,
    Drop,
    Health,
    JsonCodec,
    Outcome,
    ParkedRow,
    Queue,
    Retry,
    Role,
    Stopped,
    TableSpec,
    column,
    retry,
    table,
)
from sqlqueue.observers import Event, Observer
from sqlqueue.steps import Next, Step, StepContext, StepRun, StoredTask, Task, TaskQueue, TaskState
from sqlqueue.testing import ManualClock, Recorder, drain


@table("invoice_jobs")
class InvoiceJob:
    """Every role, and a plain data column; the database makes the id."""

    id: int = column.id(generated=True)
    shop: str = column.group()
    urgency: int = column.priority()
    customer: str | None = column.partition_key()
    due_at: datetime = column.retry_after()
    tries: int = column.attempt(name="attempts")
    done_at: datetime | None = column.processed_at()
    locked_until: datetime | None = column.lease()
    notes: dict[str, str] | None = column.headers()
    payload: bytes = column.payload()
    error: str | None = column.error()
    in_work: bool = column.running()
    source: str = "web"


@table("undeliverable")
class Undeliverable:
    """Where letters go that nobody can deliver."""

    id: UUID = column.id()
    locked_until: datetime | None = column.lease()
    address: str


@table("letters", clock=ManualClock(datetime(2030, 1, 1, tzinfo=timezone.utc)))
class Letter:
    """Row mode; the program makes the id."""

    id: UUID = column.id()
    locked_until: datetime | None = column.lease()
    address: str
    pages: int = attrs.field(default=1)


@attrs.frozen
class Invoice:
    number: str
    cents: int = 0


class Upper:
    """A codec of one's own."""

    def encode(self, message: Any) -> bytes:
        return str(message).upper().encode()

    def decoder(self, kind: Any) -> Callable[[Any], Any]:
        return lambda stored: bytes(stored).decode()


class Stepwise:
    """A retry policy of one's own."""

    def delay(self, attempt: int, error: BaseException) -> float | None:
        return None if attempt > 3 else attempt * 10.0


class Counting:
    """An observer of one's own."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def notice(self, event: Event) -> None:
        self.kinds.append(event.kind)


codecs: list[Codec] = [JsonCodec(), Upper()]
policies: list[retry.RetryPolicy] = [retry.Exponential(first=0.5, most=60), retry.Fixed(timedelta(1)), Stepwise()]
clock: Clock = ManualClock()

rows: list[InvoiceJob] = [
    InvoiceJob(shop="north", payload=b'{"number": "A-1"}'),
    InvoiceJob(shop="north", payload=b"{}", urgency=-1, customer="c", due_at=datetime.now(timezone.utc), source="fax"),
]

by_hand = TableSpec(
    name="by_hand",
    columns=[
        ColumnSpec(field="id", type=int, role=Role.ID, generated=True),
        ColumnSpec(field="locked_until", type=datetime, optional=True, role=Role.LEASE),
        ColumnSpec(field="name", type=str),
    ],
)


def declare(broker: Broker) -> tuple[Queue, Queue, Queue]:
    invoices = broker.queue(InvoiceJob, group="north")
    letters = broker.queue(Letter)
    names = broker.queue(by_hand)

    @invoices.handler(
        workers=4,
        by_key=True,
        prefetch=2,
        max_attempts=5,
        dead_letter="failed",
        retry=lambda attempt, error: attempt * 2.0,
    )
    def render(invoice: Invoice, delivery: Delivery) -> Outcome:
        if delivery.lost or not invoice.number:
            return Drop("nobody waits for it")
        if delivery.headers.get("when") == "later" and delivery.attempt == 1:
            return Retry(timedelta(milliseconds=1))
        return None if invoice.cents >= 0 else DeadLetter("a negative sum")

    @letters.handler(batch=10, retry={OSError: 5, LookupError: None}, dead_letter=Undeliverable)
    def post(posted: list[Letter], deliveries: list[Delivery]) -> list[Outcome]:
        pages: int = sum(letter.pages for letter in posted)
        assert pages
        return [Retry() if delivery.lost else None for delivery in deliveries]

    @names.handler(retry=None, on_decode_error=retry.Fixed(60), lease=timedelta(minutes=1), poll_interval=0.5)
    def greet(row: Mapping[str, Any]) -> None:
        assert row["name"]

    still: Callable[[Invoice, Delivery], Outcome] = render  # decorated, and what it was
    assert still is render
    return invoices, letters, names


@attrs.frozen
class Pack(Step):
    retry_limit: ClassVar[int] = 5
    retry_delay: ClassVar[timedelta] = timedelta(seconds=1)
    order: str
    parts: list[int]

    def run(self, context: StepContext) -> Next:
        assert context.attempt == 1
        assert context.id
        return Next.delay(Send(self.order), timedelta(milliseconds=1)) if self.parts else Next.done()


@attrs.frozen
class Send(Step):
    retry_delay: ClassVar[retry.RetryPolicy] = retry.Exponential(first=2)
    transactional: ClassVar[bool] = True
    order: str

    def run(self, context: StepContext) -> Next:
        context.connection.execute("SELECT 1")
        return Next.done()


def in_steps(broker: Broker) -> None:
    told: list[StepRun] = []
    tasks = TaskQueue(broker, [Task("Shipping", [Pack, Send], aliases={"Post": Send})], workers=2, on_step=told.append)
    broker.create_tables()
    tasks.enqueue(Pack("A-17", [1, 2]))
    tasks.delay(Send("A-18"), timedelta(days=1))
    tasks.schedule(Send("A-19"), datetime.now(timezone.utc) + timedelta(days=1))
    Consumer(broker, queues=tasks).run_until_idle(10)
    found: StoredTask | None = tasks.get(tasks.list(TaskState.DELAYED)[0].id)
    assert found is not None
    resumed: int = tasks.resume(step=Pack)
    assert resumed == 0
    assert told[0].outcome == "advanced"


def main(url: str) -> None:
    counting = Counting()
    observers: list[Observer] = [counting, Recorder()]
    with Broker(url, pool_size=4, poll_interval=timedelta(seconds=30), lease=20, codec=codecs[0]) as broker:
        invoices, letters, names = declare(broker)
        broker.create_tables()
        script: str = broker.ddl(InvoiceJob)
        assert script

        invoices.enqueue(Invoice("A-2"), key="c", headers={"when": "later", "copies": 2}, priority=1)
        invoices.enqueue(Invoice("A-3"), delay=timedelta(days=1))
        invoices.enqueue(Invoice("A-4"), at=datetime.now(timezone.utc), on_conflict="ignore")
        count: int = invoices.enqueue_many([*rows, Invoice("A-5", cents=-1)])
        letters.enqueue(Letter(id=uuid4(), address="Harbour Road 1"))
        names.enqueue({"name": "Ada"})
        assert count == 3

        stopped: Stopped = drain(broker, *observers)
        consumer = Consumer(broker, queues=[invoices, "letters"], drain_timeout=5, observers=observers)
        with consumer:
            health: Health = consumer.health()
            assert health.ok
        assert stopped.abandoned == 0
        left: Sequence[ParkedRow] = invoices.parked(limit=5)
        again: int = invoices.requeue(row.id for row in left)
        assert again == len(left)
        assert "acknowledged" in counting.kinds
        in_steps(broker)


if __name__ == "__main__":
    main(sys.argv[1])
