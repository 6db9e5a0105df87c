"""Replies and relays, on every database there is."""

from sqlqueue.testing.contract import (
    BatchRepliesContract,
    PublishingContract,
    QueueTargetContract,
    RelayContract,
    RelayOrderContract,
    RepliesContract,
)


class TestReplies(RepliesContract):
    pass


class TestPublishing(PublishingContract):
    pass


class TestBatchReplies(BatchRepliesContract):
    pass


class TestRelay(RelayContract):
    pass


class TestRelayOrder(RelayOrderContract):
    pass


class TestQueueTarget(QueueTargetContract):
    pass
