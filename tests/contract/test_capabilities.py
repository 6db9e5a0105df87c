"""Capabilities, connections and judgement, on every database there is."""

from sqlqueue.testing.contract import CapabilitiesContract


class TestCapabilities(CapabilitiesContract):
    pass
