"""Claim, dispatch, handle, keep, settle: a consumer works the rows of a broker's queues off."""

from sqlqueue.consumer.consumer import Consumer, Stopped
from sqlqueue.consumer.health import Health, QueueHealth

__all__ = ["Consumer", "Health", "QueueHealth", "Stopped"]
