"""The claim order and the order by key, on every database there is."""

from sqlqueue.testing.contract import BlockedContract


class TestBlocked(BlockedContract):
    pass
