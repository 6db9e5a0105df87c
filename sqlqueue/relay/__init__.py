"""The outbox: events that were written as rows in the business transaction go on to brokers, other tables, or tests."""

from sqlqueue.relay.relay import relay
from sqlqueue.relay.targets.memory import MemoryPublisher
from sqlqueue.relay.targets.queue import QueuePublisher
from sqlqueue.relay.tracking import Tracking

__all__ = ["MemoryPublisher", "QueuePublisher", "Tracking", "relay"]
