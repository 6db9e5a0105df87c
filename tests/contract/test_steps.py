"""Step tasks, on every database there is."""

from sqlqueue.testing.contract import StepLooksContract, StepRefusalsContract, StepsAtWorkContract, StepsContract


class TestSteps(StepsContract):
    pass


class TestStepRefusals(StepRefusalsContract):
    pass


class TestStepLooks(StepLooksContract):
    pass


class TestStepsAtWork(StepsAtWorkContract):
    pass
