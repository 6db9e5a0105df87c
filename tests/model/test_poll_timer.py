"""A model of the poll timer: no queue is looked at later than it must be, nor at all where nothing can come."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from sqlqueue.consumer.polling import FIRST_BACKOFF, GRAIN, MOST_BACKOFF, MOST_BACKOFF_PERMANENT, SOON, PollTimer

NEVER = float("inf")
CLOSE = 1e-6  # seconds; instants are floats


class PollTimerModel(RuleBasedStateMachine):
    """`must`: the instant at which the queue has to be looked at again, at the latest."""

    @initialize(poll=st.sampled_from([0.05, 1.0, 60.0]), start=st.sampled_from([0.0, 123_456.7]))
    def start(self, poll: float, start: float) -> None:
        self.timer = PollTimer(poll)
        self.poll = poll
        self.now = start
        self.must = start
        self.dues: list[float] = []
        self.backoff = 0.0

    @property
    def waits(self) -> float:
        wait = self.timer.wait(self.now)
        return NEVER if wait is None else wait

    def asks_for_a_look(self) -> None:
        if not self.backoff:
            self.must = min(self.must, self.now)

    def begin(self) -> None:
        self.timer.begin(self.now)
        self.dues = [due for due in self.dues if due > self.now]

    def goes_through(self) -> None:
        self.timer.recovered()
        if self.backoff:
            self.backoff, self.must = 0.0, self.now

    @rule(seconds=st.sampled_from([0.001, 0.01, 0.3, 1.0, 7.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def somebody_writes(self) -> None:
        self.timer.wake(self.now)
        self.asks_for_a_look()

    @rule(due_in=st.floats(-5, 100))
    def a_row_of_ours_is_put_off(self, due_in: float) -> None:
        self.timer.due(self.now, due_in)
        if due_in > 0:
            self.dues.append(self.now + due_in)
        else:
            self.asks_for_a_look()

    @precondition(lambda self: self.waits == 0.0)
    @rule()
    def a_claim_comes_back_full(self) -> None:
        self.begin()
        self.goes_through()
        self.timer.full(self.now)
        self.must = self.now

    @precondition(lambda self: self.waits == 0.0)
    @rule(due_in=st.none() | st.floats(-5, 100), hidden=st.booleans(), certain=st.booleans(), wakes=st.booleans())
    def a_claim_comes_back_short(self, due_in: float | None, hidden: bool, certain: bool, wakes: bool) -> None:
        self.begin()
        self.goes_through()
        if wakes:
            self.timer.wake(self.now)
        self.timer.short(self.now, due_in=due_in, hidden=hidden, certain=certain)
        self.must = NEVER if certain and not hidden else self.now + self.poll
        if due_in is not None:
            # A due row that was passed over is looked at again soon, then less and less often, up to the poll.
            self.must = min(self.must, self.now + due_in if due_in > 0 else self.now + max(self.poll, SOON))
        if wakes:
            self.must = self.now

    @precondition(lambda self: self.waits == 0.0)
    @rule(spread=st.floats(0, 1), permanent=st.booleans())
    def a_look_fails(self, spread: float, permanent: bool) -> None:
        self.begin()
        pause = self.timer.trouble(self.now, spread=spread, permanent=permanent)
        most = MOST_BACKOFF_PERMANENT if permanent else MOST_BACKOFF
        self.backoff = min(most, max(FIRST_BACKOFF, self.backoff * 2))
        assert self.backoff / 2 - CLOSE <= pause <= self.backoff + CLOSE
        assert abs(self.waits - pause) < CLOSE
        self.must = self.now + pause

    @rule()
    def an_extension_goes_through(self) -> None:
        self.goes_through()

    @invariant()
    def it_is_never_later_than_it_must_be(self) -> None:
        must = self.must if self.backoff else min([self.must, *(due + GRAIN for due in self.dues)])
        assert self.now + self.waits <= max(must, self.now) + CLOSE

    @invariant()
    def it_never_waits_less_than_nothing(self) -> None:
        assert self.waits >= 0.0


def test_the_poll_timer_is_never_late() -> None:
    run_state_machine_as_test(
        PollTimerModel, settings=settings(max_examples=150, stateful_step_count=30, deadline=None)
    )


def test_a_new_queue_is_looked_at_at_once() -> None:
    assert PollTimer(60).wait(-1e9) == 0.0


def test_a_queue_that_every_write_wakes_and_that_holds_nothing_is_not_looked_at() -> None:
    timer = PollTimer(1)
    timer.begin(0)
    timer.short(0, due_in=None, hidden=False, certain=True)
    assert timer.wait(1e9) is None
    timer.wake(1e9)
    assert timer.wait(1e9) == 0.0


def test_full_claims_follow_each_other_without_a_pause() -> None:
    """SUITE 68"""
    timer = PollTimer(60)
    for now in (0.0, 0.5, 0.5):
        assert timer.wait(now) == 0.0
        timer.begin(now)
        timer.full(now)


def test_a_due_row_that_was_passed_over_is_looked_at_again_soon_then_less_often_up_to_the_poll() -> None:
    """SUITE 4"""
    timer = PollTimer(1)
    waits = []
    for _ in range(6):
        timer.begin(0)
        timer.short(0, due_in=-3)
        waits.append(timer.wait(0))
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=200))
@settings(max_examples=30)
def test_many_rows_that_fall_due_together_are_looked_for_together(dues: list[float]) -> None:
    timer = PollTimer(1e6)
    timer.begin(0)
    for due in dues:
        timer.due(0, due)
    timer.short(0)
    now, looks = 0.0, 0
    while (wait := timer.wait(now)) is not None and now + wait < 1e5:
        now += wait
        timer.begin(now)
        timer.short(now)
        looks += 1
    assert looks <= len({round(due / GRAIN) for due in dues} | {round(due / GRAIN) + 1 for due in dues})
    assert now == pytest.approx(max(dues), abs=2 * GRAIN)
