"""Parked rows, on every database there is."""

from sqlqueue.testing.contract import ParkedContract


class TestParked(ParkedContract):
    pass
