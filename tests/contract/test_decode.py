"""Rows that cannot be read, on every database there is."""

from sqlqueue.testing.contract import DecodeContract


class TestDecode(DecodeContract):
    pass
