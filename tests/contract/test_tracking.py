"""Outbox tracking, on every database there is."""

from sqlqueue.testing.contract import (
    PruningContract,
    RepublishContract,
    TrackedHandlersContract,
    TrackedRepliesContract,
    TrackingContract,
)


class TestTracking(TrackingContract):
    pass


class TestTrackedHandlers(TrackedHandlersContract):
    pass


class TestTrackedReplies(TrackedRepliesContract):
    pass


class TestRepublish(RepublishContract):
    pass


class TestPruning(PruningContract):
    pass
