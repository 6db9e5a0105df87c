"""A shop that takes orders, and the relay that tells others of them: the order and its event are written as one.

    python examples/shop.py                                                  # a temporary SQLite file, a bus in memory
    python examples/shop.py --url postgresql://localhost/shop --to kafka://localhost:9092/orders

A checkout writes the order and its event in one transaction. Some customers press the button twice, which makes one
order and one event; some carts turn out to be empty at the last moment, and their transaction is rolled back. The
relay, here in the same process, publishes each event and then deletes its row. `--to` is any publisher's URL.
"""

import argparse
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote

import attrs

from sqlqueue import Broker, Consumer, Queue, column, table
from sqlqueue.relay import MemoryPublisher, relay

CUSTOMERS = ("jane", "joe", "ann")

CREATE = "CREATE TABLE IF NOT EXISTS shop_orders (number varchar(20) PRIMARY KEY, customer text, amount integer)"
PLACE = "INSERT INTO shop_orders VALUES ({0}, {0}, {0}) ON CONFLICT DO NOTHING RETURNING number"

WAITING = "SELECT count(*) FROM shop_events"


@table("shop_events")
class Event:
    id: int = column.id(generated=True)
    customer: str | None = column.partition_key(fifo=True)  # in order for each customer, over all relays
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()


@attrs.frozen
class OrderPlaced:
    number: str
    customer: str
    amount: int


class EmptyCart(Exception):  # noqa: N818 - what happened
    """There is nothing to order."""


@attrs.frozen
class Shop:
    """Takes orders on a connection of its own, the driver's; `sign` stands for a value there."""

    connection: Any
    transaction: Callable[[], AbstractContextManager[Any]]  # commits, or rolls back
    sign: str
    events: Queue

    def create(self) -> None:
        with self.transaction():
            self.connection.execute(CREATE)

    def waiting(self) -> int:
        """How many events are not published yet."""
        with self.transaction():
            ((count,),) = self.connection.execute(WAITING).fetchall()
        return int(count)

    def check_out(self, order: OrderPlaced) -> bool:
        """Write the order and its event, both or neither; False where the order is there already."""
        with self.transaction():
            values = (order.number, order.customer, order.amount)
            if not self.connection.execute(PLACE.format(self.sign), values).fetchall():
                return False
            self.events.enqueue(order, key=order.customer, connection=self.connection)
            if not order.amount:
                raise EmptyCart(order.number)
        return True


def sell(shop: Shop, orders: int) -> int:
    """Check out so many orders, some of them twice, and empty carts between them; how many were placed."""
    placed = 0
    for number in range(1, orders + 1):
        order = OrderPlaced(f"A-{number}", CUSTOMERS[number % len(CUSTOMERS)], 10 * number)
        for _ in range(1 + number % 2):  # every other customer presses the button twice
            placed += shop.check_out(order)
        try:
            shop.check_out(attrs.evolve(order, number=f"B-{number}", amount=0))
        except EmptyCart:
            pass  # its event was rolled back with it
    return placed


def run(url: str, to: str, orders: int) -> int:
    """Sell, and publish what there is; how many events wait to be tried again."""
    with Broker(url) as broker:
        events = broker.queue(Event)
        publisher = broker.publisher(to)
        relay(events, to=publisher, workers=4)
        broker.create_tables()
        with shop_on(url, events) as shop:
            shop.create()
            print(f"{sell(shop, orders)} orders were placed", flush=True)
            before = shop.waiting()
            Consumer(broker).run_until_idle(60)
            left = shop.waiting()
        print(f"{before - left} events were published to {publisher.name}", flush=True)
        if isinstance(publisher, MemoryPublisher):
            for message in publisher.messages:
                print(f"  {message.key}: event {message.id} {message.payload.decode()}")
        if left:
            print(f"{left} wait to be tried again", flush=True)
        return left


@contextmanager
def shop_on(url: str, events: Queue) -> Iterator[Shop]:
    """The shop with its own connection, which is closed afterwards."""
    if url.startswith("sqlite:///"):
        with closing(sqlite3.connect(unquote(url.removeprefix("sqlite:///")), timeout=10)) as file:
            yield Shop(file, lambda: file, "?", events)
        return
    import psycopg

    with closing(psycopg.connect(url)) as server:
        yield Shop(server, server.transaction, "%s", events)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Take orders, and relay their events.")
    arguments.add_argument("--url", help="the shop's database (default: a temporary SQLite file)")
    arguments.add_argument("--to", default="memory://bus", help="where events go (%(default)s)")
    arguments.add_argument("--orders", type=int, default=6, help="how many (%(default)s)")
    given = arguments.parse_args()
    if given.url and given.url.startswith("sqlite:") and not given.url.partition("sqlite:///")[2]:
        arguments.error("--url needs a file's path, as in sqlite:///shop.db: the shop and its relay each open it")
    with tempfile.TemporaryDirectory(prefix="sqlqueue-shop-") as directory:
        left = run(given.url or f"sqlite:///{quote(directory)}/shop.db", given.to, given.orders)
    sys.exit(1 if left else 0)


if __name__ == "__main__":
    main()
