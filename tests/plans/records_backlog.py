"""A table of many processed records and few others, and the calls that are made on it."""

from collections.abc import Sequence
from datetime import datetime, timezone

from sqlqueue import Broker, Role
from sqlqueue.relay.records import Records, Unprocessed
from sqlqueue.spec import spec_of
from sqlqueue.sql import Call
from sqlqueue.testing.contract.tracked import Outbox, Sent, message, tracked
from tests.support.database import Database

MANY, LEFT = 30_000, 10

# All but a few, one after the other; ten of them long ago.
PROCESSED = "UPDATE outbox SET processed_at = '2030-01-01 00:00:00+00' WHERE id <= ?"
LONG_AGO = "UPDATE outbox SET processed_at = '2020-01-01 00:00:00+00' WHERE id <= ?"

COPY = """
INSERT INTO outbox (name, payload)
SELECT name, payload FROM outbox
"""

BEFORE = datetime(2025, 1, 1, tzinfo=timezone.utc)


def filled(database: Database, broker: Broker) -> None:
    tracked(broker).publisher(Sent()).publish([message()])
    for _ in range(15):
        database.execute(COPY)
    ((count,),) = database.execute("SELECT count(*) FROM outbox")
    assert count > MANY
    database.execute(PROCESSED, count - LEFT)
    database.execute(LONG_AGO, LEFT)


def calls_of_tracking(broker: Broker) -> Sequence[Call]:
    """To look for the newest record, for the first and the next page, and to prune some."""
    records = Records(broker.dialect, spec_of(Outbox), broker.codec)
    unprocessed = Unprocessed(records, None)
    newest, first, next = unprocessed.newest, unprocessed.first, unprocessed.next
    moment = records.sql.now_encoder(Role.PROCESSED_AT)(BEFORE)
    return [
        Call(newest),
        Call(first, {"newest": 2**40, "limit": 5}),
        Call(next, {"newest": 2**40, "after": 7, "limit": 5}),
        *[Call(one, {"before": moment}) for one in records.pruning(LEFT)],
    ]
