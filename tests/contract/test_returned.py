"""What handlers return, on every database there is."""

from sqlqueue.testing.contract import ReturnedContract


class TestReturned(ReturnedContract):
    pass
