"""Leases at work, on every database there is."""

from sqlqueue.testing.contract import LeaseContract


class TestLease(LeaseContract):
    pass
