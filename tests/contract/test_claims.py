from sqlqueue.testing.contract.claims import ClaimsContract


class TestClaims(ClaimsContract):
    pass
