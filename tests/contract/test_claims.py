"""Claims and the forms of their rows, on every database there is."""

from sqlqueue.testing.contract import ClaimsContract


class TestClaims(ClaimsContract):
    pass
