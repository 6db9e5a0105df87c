"""Policies, on every database there is."""

from sqlqueue.testing.contract import PoliciesContract


class TestPolicies(PoliciesContract):
    pass
