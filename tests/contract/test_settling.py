from sqlqueue.testing.contract.settling import SettlingContract


class TestSettling(SettlingContract):
    pass
