"""FIFO lines, on every database there is."""

from sqlqueue.testing.contract import LinesAtWorkContract, LinesContract, ManyLinesContract


class TestLines(LinesContract):
    pass


class TestManyLines(ManyLinesContract):
    pass


class TestLinesAtWork(LinesAtWorkContract):
    pass
