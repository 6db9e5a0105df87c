from sqlqueue.testing.contract.lease import LeaseContract


class TestLease(LeaseContract):
    pass
