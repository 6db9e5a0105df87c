"""An outbox whose relays publish to a table of another database, where all that arrived stays to be looked at."""

from sqlqueue import Broker, column, table
from sqlqueue.relay import QueuePublisher
from sqlqueue.spec import TableSpec
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, held_by
from sqlqueue.testing.contract.line_tables import LineJob
from sqlqueue.testing.contract.tables import KeyedJob


@table("arrived", advisory_lock="arrived-{id}")
class Arrived:
    """By id, in the order of arrival."""

    id: int = column.id(generated=True)
    message: str | None = None
    account: str = column.partition_key()
    payload: bytes = column.payload()


def events_by(strategy: str) -> TableSpec:
    """The outbox: FIFO keys, or locks on the keys themselves."""
    if strategy == ADVISORY_LOCK:
        return held_by(strategy, KeyedJob, "{account}")
    return held_by(strategy, LineJob)


def bus_on(broker: Broker) -> QueuePublisher:
    return QueuePublisher(broker.queue(Arrived), id_field="message")
