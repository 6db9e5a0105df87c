"""Step tasks, on every database there is."""

from sqlqueue.testing.contract import StepRefusalsContract, StepsAtWorkContract, StepsContract


class TestSteps(StepsContract):
    pass


class TestStepRefusals(StepRefusalsContract):
    pass


class TestStepsAtWork(StepsAtWorkContract):
    pass
