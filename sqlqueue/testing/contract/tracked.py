"""What the tests of tracking share: tables of records, and a publisher that keeps what it is given."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import attrs

from sqlqueue import column
from sqlqueue.broker import Broker
from sqlqueue.clock import ClockSource
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.queue import Queue
from sqlqueue.relay import Tracking
from sqlqueue.spec import spec_of
from sqlqueue.table import table
from sqlqueue.testing.contract.looking import Database


@table("outbox")
class Outbox:
    """Keeps what is processed, and everything of a message."""

    id: int = column.id(generated=True)
    name: str | None = column.group()
    account: str | None = column.partition_key()
    headers: dict[str, str] | None = column.headers()
    payload: bytes = column.payload()
    processed_at: datetime | None = column.processed_at()


@table("short_outbox")
class ShortOutbox:
    """The least: what is processed is deleted. Its ids are made here."""

    id: UUID = column.id()
    name: str = column.group()
    payload: str = column.payload()


class Sent:
    """A publisher that keeps what it is given, or raises what `fails` is set to; `before`: called first."""

    name = "kept in memory"

    def __init__(self) -> None:
        self.messages: list[OutgoingMessage] = []
        self.fails: Exception | None = None
        self.before: Callable[[], None] = lambda: None
        self.closed = False

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        self.before()
        if self.fails is not None:
            raise self.fails
        self.messages += messages

    def close(self) -> None:
        self.closed = True


def tracked(
    broker: Broker, declared: type = Outbox, clock: ClockSource | None = None, names: Any = None, **options: Any
) -> Tracking:
    """Tracking by a table that is there."""
    spec = spec_of(declared)
    tracking = Tracking(broker, spec if clock is None else attrs.evolve(spec, clock=clock), names=names, **options)
    tracking.create_table()
    return tracking


def message(text: str = "x", name: str | None = "mail", **fields: Any) -> OutgoingMessage:
    return OutgoingMessage(payload=text.encode(), destination=name, **fields)


def arrive(queue: Queue, *messages: OutgoingMessage) -> None:
    """The messages as they come to a consumer, each a row with its headers."""
    for one in messages:
        queue.enqueue(one.payload.decode(), headers=one.headers)


def processed(database: Database) -> list[int]:
    """The ids of the records that are processed, as another program finds them."""
    rows = database.execute("SELECT id FROM outbox WHERE processed_at IS NOT NULL ORDER BY id")
    return [id for (id,) in rows]


def recorded(database: Database) -> list[tuple[Any, ...]]:
    """Ids, names and keys of all records."""
    return list(database.execute("SELECT id, name, account FROM outbox ORDER BY id"))
