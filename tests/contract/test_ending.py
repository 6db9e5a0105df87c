"""The end of a consumer or its broker, on every database there is."""

from sqlqueue.testing.contract import EndingContract


class TestEnding(EndingContract):
    pass
