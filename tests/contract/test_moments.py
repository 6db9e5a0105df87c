"""Conditions on moments, on every database there is."""

from sqlqueue.testing.contract import MomentsContract


class TestMoments(MomentsContract):
    pass
