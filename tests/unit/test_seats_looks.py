"""What looks of several seats tell of the queue, whichever of them ends first."""

from datetime import datetime, timezone
from time import monotonic
from typing import Any
from unittest.mock import create_autospec

import pytest

from sqlqueue.consumer.connection_worker import ConnectionWorker
from sqlqueue.consumer.polling import GRAIN, SOON, PollTimer
from sqlqueue.consumer.run_handler import Runner, Work
from sqlqueue.consumer.worker_group import Shared, WorkerGroup
from sqlqueue.delivery import Delivery
from sqlqueue.observers import Observers
from sqlqueue.strategies.claim import Ahead, Claim

EMPTY = Ahead(hidden=False)

#: It is only kept here.
CONNECTION: Any = object()


@pytest.fixture
def seats() -> WorkerGroup:
    runner = create_autospec(Runner, instance=True, notices=Observers("jobs"))
    shared = create_autospec(Shared, instance=True, queue="jobs", runner=runner, one_at_a_time=False)
    shared.now = lambda: datetime(2026, 1, 1, tzinfo=timezone.utc)
    shared.certain = lambda: True
    return WorkerGroup(shared, PollTimer(60.0), workers=2, by_key=False)


def a_seat(seats: WorkerGroup) -> ConnectionWorker:
    return ConnectionWorker(seats, lambda error: None)


def some_work() -> Work:
    return Work(Delivery("jobs", Claim(1, None, None, None, ())))


def test_a_look_that_began_earlier_and_ends_later_hides_no_rows(seats: WorkerGroup) -> None:
    early, late = a_seat(seats), a_seat(seats)
    before = seats.begin_look()
    seats.wake()
    seats.begin_look()
    seats.found(some_work(), CONNECTION, late)
    seats.found_nothing(EMPTY, before, early)
    assert seats._pace.wait(monotonic()) == 0.0


@pytest.mark.parametrize("early_first", [True, False])
def test_what_a_look_that_began_earlier_saw_due_is_looked_for_soon(seats: WorkerGroup, early_first: bool) -> None:
    """The later one may have run while the earlier one tried that row, and held the lock on its key."""
    before, after = seats.begin_look(), seats.begin_look()
    told = [(Ahead(hidden=True, passed_over=True), before), (Ahead(hidden=True), after)]
    for ahead, look in told if early_first else reversed(told):
        seats.found_nothing(ahead, look, a_seat(seats))
    wait = seats._pace.wait(monotonic())
    assert wait is not None
    assert wait <= SOON + GRAIN
    assert not seats.idle
    seats.found_nothing(Ahead(hidden=True), seats.begin_look(), a_seat(seats))
    assert seats.idle


def test_a_due_row_that_was_passed_over_counts_as_somebody_elses_once_two_looks_say_so(seats: WorkerGroup) -> None:
    """One look may have hidden it from itself: it held the lock on a key whose first row had just gone."""
    passed_over = Ahead(hidden=True, passed_over=True)
    for idle in (False, True, True):
        seats.found_nothing(passed_over, seats.begin_look(), a_seat(seats))
        assert seats.idle is idle


def test_a_look_that_began_earlier_and_ends_later_keeps_nobody_from_being_idle(seats: WorkerGroup) -> None:
    early, late = a_seat(seats), a_seat(seats)
    before = seats.begin_look()
    seats.wake()
    after = seats.begin_look()
    seats.found_nothing(EMPTY, after, late)
    seats.found_nothing(EMPTY, before, early)
    assert seats.idle


def test_a_seat_is_not_idle_between_its_settlement_and_the_look_behind_it(seats: WorkerGroup) -> None:
    seat, work = a_seat(seats), some_work()
    seats.begin_look()
    seats.found(work, CONNECTION, seat)
    look = seats.begin_look()
    seats.found_nothing(EMPTY, look, a_seat(seats))
    assert seats.take_back(work)
    seats.in_hand.done()
    assert not seats.idle
    look = seats.begin_look()
    seats.found_nothing(EMPTY, look, seat)
    assert seats.idle
