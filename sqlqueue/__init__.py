"""Task queues, a transactional outbox and resumable step tasks on the tables that a service already owns.

The code is read in the order of a row's path: declare (`table`, `column`), enqueue (`Broker`, `Queue`), claim
(`sqlqueue.strategies`), dispatch, handle and keep (`Consumer`), settle (`outcome`, `retry`).
"""

from sqlqueue import column, retry
from sqlqueue.broker import Broker
from sqlqueue.clock import Clock, DatabaseClock, HostClock
from sqlqueue.codec import Codec, JsonCodec
from sqlqueue.consumer import Consumer, Health, QueueHealth, Stopped
from sqlqueue.delivery import Delivery
from sqlqueue.errors import (
    BrokerClosed,
    DeclarationError,
    DecodeError,
    DialectNotFound,
    EncodeError,
    PoolTooSmall,
    PublisherNotFound,
    PublishError,
    SchemaError,
    SQLQueueError,
    Unsupported,
)
from sqlqueue.inspect import BlockedKey, ParkedRow
from sqlqueue.outcome import DeadLetter, Drop, Outcome, Retry
from sqlqueue.publisher import OutgoingMessage, Publisher
from sqlqueue.queue import Queue
from sqlqueue.roles import Role
from sqlqueue.spec import AdvisoryLock, ColumnSpec, TableSpec
from sqlqueue.table import table

__all__ = [
    "AdvisoryLock",
    "BlockedKey",
    "Broker",
    "BrokerClosed",
    "Clock",
    "Codec",
    "ColumnSpec",
    "Consumer",
    "DatabaseClock",
    "DeadLetter",
    "DeclarationError",
    "DecodeError",
    "Delivery",
    "DialectNotFound",
    "Drop",
    "EncodeError",
    "Health",
    "HostClock",
    "JsonCodec",
    "Outcome",
    "OutgoingMessage",
    "ParkedRow",
    "PoolTooSmall",
    "PublishError",
    "Publisher",
    "PublisherNotFound",
    "Queue",
    "QueueHealth",
    "Retry",
    "Role",
    "SQLQueueError",
    "SchemaError",
    "Stopped",
    "TableSpec",
    "Unsupported",
    "column",
    "retry",
    "table",
]
