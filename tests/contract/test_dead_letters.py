"""Dead letters, on every database there is."""

from sqlqueue.testing.contract import DeadLetterPlacesContract, DeadLettersContract


class TestDeadLetters(DeadLettersContract):
    pass


class TestDeadLetterPlaces(DeadLetterPlacesContract):
    pass
