"""Taking from a queue within a time limit ends in time, on every Python."""

import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue

import pytest

from sqlqueue.consumer.polling import take
from tests.consumer.helpers import LIMIT


def ends(work: Callable[[], None]) -> bool:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(LIMIT)
    return not thread.is_alive()


@pytest.mark.parametrize(("seconds", "times"), [(0.0, 200_000), (-1.0, 1_000), (1e-7, 200)])
def test_a_limit_that_is_up_at_once_ends(seconds: float, times: int) -> None:
    """Python 3.10 waits for ever in one of 30,000 tries or so."""

    def try_often() -> None:
        for _ in range(times):
            with pytest.raises(Empty):
                take(SimpleQueue(), seconds)

    assert ends(try_often)


def test_what_is_there_is_taken_and_what_comes_in_time_as_well() -> None:
    items: SimpleQueue[str] = SimpleQueue()
    items.put("there")
    assert take(items, 0.0) == "there"
    threading.Timer(0.01, items.put, ["comes"]).start()
    assert take(items, LIMIT) == "comes"
