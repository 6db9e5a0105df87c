"""Enqueueing, on every database there is."""

from sqlqueue.testing.contract import EnqueueContract


class TestEnqueue(EnqueueContract):
    pass
