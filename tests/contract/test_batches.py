"""Batches, on every database there is."""

from sqlqueue.testing.contract import BatchesContract, BatchOutcomesContract


class TestBatches(BatchesContract):
    pass


class TestBatchOutcomes(BatchOutcomesContract):
    pass
