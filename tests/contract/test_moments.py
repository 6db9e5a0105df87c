from sqlqueue.testing.contract.moments import MomentsContract


class TestMoments(MomentsContract):
    pass
