"""An order service: each checkout becomes one order and one event, written in the transaction that settles it."""

from datetime import datetime

import attrs

from sqlqueue import Broker, Delivery, column, table
from sqlqueue.queue import Queue
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.testing.contract.holding import held_by


@table("checkouts")
class Checkout:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    amount: int = column.payload()


@table("events")
class Event:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()


#: No key keeps an order from being written twice.
ORDERS = "CREATE TABLE orders (checkout bigint NOT NULL, amount bigint NOT NULL)"
PLACE = "INSERT INTO orders VALUES ({checkout}, {amount})"


def checkouts_by(strategy: str) -> TableSpec:
    spec = held_by(strategy, Checkout)
    columns = [attrs.evolve(one, type=str) if one.field == "amount" else one for one in spec.columns]
    return attrs.evolve(spec, columns=columns, row_class=None)


@attrs.frozen
class Shop:
    broker: Broker
    checkouts: Queue
    events: Queue

    def order(self, amount: int, delivery: Delivery) -> None:
        delivery.connection.execute(PLACE.format(checkout=delivery.id, amount=amount))

    def tell(self, delivery: Delivery) -> None:
        self.events.enqueue(f"placed {delivery.id}", connection=delivery.connection)


def shop_on(broker: Broker, strategy: str) -> Shop:
    return Shop(broker, broker.queue(checkouts_by(strategy)), broker.queue(spec_of(Event)))
