from sqlqueue.testing.contract.clocks import ClocksContract


class TestClocks(ClocksContract):
    pass
