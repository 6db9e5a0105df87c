"""Settlements, on every database there is."""

from sqlqueue.testing.contract import SettlingContract


class TestSettling(SettlingContract):
    pass
