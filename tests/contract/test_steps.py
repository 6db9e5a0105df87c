"""Step tasks, on every database there is."""

from sqlqueue.testing.contract import StepsAtWorkContract, StepsContract


class TestSteps(StepsContract):
    pass


class TestStepsAtWork(StepsAtWorkContract):
    pass
