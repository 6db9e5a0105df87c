"""Transactional handlers, on every database there is."""

from sqlqueue.testing.contract import TransactionalContract, TransactionsAtWorkContract


class TestTransactional(TransactionalContract):
    pass


class TestTransactionsAtWork(TransactionsAtWorkContract):
    pass
