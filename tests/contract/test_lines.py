"""FIFO lines, on every database there is."""

from sqlqueue.testing.contract import LinesContract


class TestLines(LinesContract):
    pass
