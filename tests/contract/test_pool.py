"""The pool's budget, on every database there is."""

from sqlqueue.testing.contract import PoolContract


class TestPool(PoolContract):
    pass
