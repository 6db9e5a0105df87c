"""When the leases of what is in work must be extended: before half of the oldest has passed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlqueue.consumer.in_flight import LeaseTimer


def test_nothing_held_waits_for_nothing() -> None:
    assert LeaseTimer(30).wait(100) is None


def test_the_first_extension_comes_half_a_lease_after_the_oldest_was_written() -> None:
    timer = LeaseTimer(30)
    timer.written(100)
    timer.written(110)
    assert [timer.wait(now) for now in (100, 110, 115, 120)] == [15, 5, 0, 0]


def test_extensions_follow_each_other_by_half_a_lease_while_anything_is_held() -> None:
    timer = LeaseTimer(30)
    timer.written(100)
    timer.extended(115, held=True)
    assert timer.wait(115) == 15
    timer.extended(130, held=False)
    assert timer.wait(130) is None
    timer.written(131)
    assert timer.wait(131) == 15


def test_after_a_failure_there_is_time_for_several_more_tries() -> None:
    timer = LeaseTimer(8)
    timer.written(0)
    tries = 0
    now = 4.0
    while now < 8:
        tries += 1
        timer.failed(now)
        wait = timer.wait(now)
        assert wait is not None
        now += wait
    assert tries >= 4


@given(
    st.floats(0.1, 1e6),
    st.lists(st.tuples(st.floats(0, 1e3), st.sampled_from(["claim", "settle"])), max_size=30),
)
def test_no_lease_that_is_held_waits_longer_than_half_of_itself(lease: float, steps: list[tuple[float, str]]) -> None:
    timer = LeaseTimer(lease)
    now = 0.0
    written: list[float] = []
    for pause, action in steps:
        end = now + pause
        while (wait := timer.wait(now)) is not None and now + wait <= end:
            now += wait
            assert all(now - one <= lease / 2 * 1.000001 for one in written)
            timer.extended(now, bool(written))
            written = [now for _ in written]
        now = end
        if action == "claim":
            timer.written(now)
            written.append(now)
        elif written:
            written.pop(0)
    assert timer.wait(now) is not None or not written


@pytest.mark.parametrize("lease", [0.1, 1, 30, 86_400])
def test_the_wait_is_never_negative(lease: float) -> None:
    timer = LeaseTimer(lease)
    timer.written(0)
    assert timer.wait(10 * lease) == 0
