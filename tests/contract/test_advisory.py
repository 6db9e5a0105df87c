"""Advisory locks, on every database there is."""

from sqlqueue.testing.contract import AdvisoryContract


class TestAdvisory(AdvisoryContract):
    pass
