"""Transactional handlers, on every database there is."""

from sqlqueue.testing.contract import TransactionalContract


class TestTransactional(TransactionalContract):
    pass
