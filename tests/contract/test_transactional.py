"""Transactional handlers, on every database there is."""

from sqlqueue.testing.contract import TransactionalContract, TransactionEndsContract, TransactionsAtWorkContract


class TestTransactional(TransactionalContract):
    pass


class TestTransactionEnds(TransactionEndsContract):
    pass


class TestTransactionsAtWork(TransactionsAtWorkContract):
    pass
