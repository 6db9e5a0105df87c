"""The lease's tokens, on every database there is."""

from sqlqueue.testing.contract import TokensContract


class TestTokens(TokensContract):
    pass
