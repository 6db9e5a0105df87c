"""Clocks, on every database there is."""

from sqlqueue.testing.contract import ClocksContract


class TestClocks(ClocksContract):
    pass
