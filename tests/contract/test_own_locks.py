"""Locks that another system keeps, on every database there is."""

from sqlqueue.testing.contract import OwnLocksContract


class TestOwnLocks(OwnLocksContract):
    pass
