"""What handlers return, on every database there is."""

from sqlqueue.testing.contract import AnswersContract


class TestAnswers(AnswersContract):
    pass
