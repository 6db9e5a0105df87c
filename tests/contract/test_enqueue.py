from sqlqueue.testing.contract.enqueue import EnqueueContract


class TestEnqueue(EnqueueContract):
    pass
