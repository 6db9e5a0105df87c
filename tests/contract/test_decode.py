from sqlqueue.testing.contract.decode import DecodeContract


class TestDecode(DecodeContract):
    pass
