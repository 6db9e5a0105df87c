from sqlqueue.testing.contract.capabilities import CapabilitiesContract


class TestCapabilities(CapabilitiesContract):
    pass
