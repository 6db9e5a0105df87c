"""What claims of several connection workers tell of the queue, whichever of them ends first."""

from datetime import datetime, timezone
from time import monotonic
from typing import Any
from unittest.mock import create_autospec

import pytest

from sqlqueue.consumer import connection_worker
from sqlqueue.consumer.polling import GRAIN, SOON, ClaimRound, PollTimer
from sqlqueue.consumer.run_handler import Runner, Work
from sqlqueue.consumer.worker_group import WorkerGroup
from sqlqueue.consumer.workers import GroupPlan
from sqlqueue.delivery import Delivery
from sqlqueue.dialect import Waker
from sqlqueue.observers import Observers
from sqlqueue.strategies.claim import Claim, Upcoming

EMPTY = Upcoming(hidden=False)

#: It is only kept here.
CONNECTION: Any = object()


@pytest.fixture
def group() -> WorkerGroup:
    plan = GroupPlan(
        queue="jobs",
        strategy=create_autospec(object),
        budget=create_autospec(object),
        runner=create_autospec(Runner, instance=True, observers=Observers("jobs")),
        now=lambda: datetime(2026, 1, 1, tzinfo=timezone.utc),
        classify=create_autospec(object),
        waker=create_autospec(Waker, instance=True, certain=True),
    )
    work, give_back = connection_worker.work, connection_worker.give_back
    return WorkerGroup(plan, PollTimer(60.0), workers=2, work=work, give_back=give_back)


def a_worker(group: WorkerGroup) -> connection_worker.ConnectionWorker:
    return connection_worker.ConnectionWorker(group, lambda error: None)


def begun(group: WorkerGroup) -> ClaimRound:
    round = group.begin_claim()
    assert round is not None
    return round


def some_work() -> Work:
    return Work(Delivery("jobs", Claim(1, None, None, None, ())))


def test_a_claim_that_began_earlier_and_ends_later_hides_no_rows(group: WorkerGroup) -> None:
    early, late = a_worker(group), a_worker(group)
    before = begun(group)
    group.wake()
    group.found(begun(group), [some_work()], CONNECTION, late)
    group.found_nothing(before, EMPTY, early)
    assert group._timer.wait(monotonic()) == 0.0


@pytest.mark.parametrize("early_first", [True, False])
def test_what_a_claim_that_began_earlier_saw_due_is_claimed_soon(group: WorkerGroup, early_first: bool) -> None:
    """The later one may have run while the earlier one tried that row, and held the lock on its key."""
    before, after = begun(group), begun(group)
    ends = [(before, Upcoming(hidden=True, skipped=True)), (after, Upcoming(hidden=True))]
    for round, ahead in ends if early_first else reversed(ends):
        group.found_nothing(round, ahead, a_worker(group))
    wait = group._timer.wait(monotonic())
    assert wait is not None
    assert wait <= SOON + GRAIN
    assert not group.idle
    group.found_nothing(begun(group), Upcoming(hidden=True), a_worker(group))
    assert group.idle


def test_a_due_row_that_was_passed_over_counts_as_somebody_elses_once_two_claims_say_so(group: WorkerGroup) -> None:
    """One claim may have hidden it from itself: it held the lock on a key whose first row had just gone."""
    passed_over = Upcoming(hidden=True, skipped=True)
    for idle in (False, True, True):
        group.found_nothing(begun(group), passed_over, a_worker(group))
        assert group.idle is idle


def test_a_claim_that_began_earlier_and_ends_later_keeps_nobody_from_being_idle(group: WorkerGroup) -> None:
    early, late = a_worker(group), a_worker(group)
    before = begun(group)
    group.wake()
    after = begun(group)
    group.found_nothing(after, EMPTY, late)
    group.found_nothing(before, EMPTY, early)
    assert group.idle


def test_a_worker_is_not_idle_between_its_settlement_and_the_claim_behind_it(group: WorkerGroup) -> None:
    worker, work = a_worker(group), some_work()
    group.found(begun(group), [work], CONNECTION, worker)
    group.found_nothing(begun(group), EMPTY, a_worker(group))
    assert group.rows.take([work])
    group.rows.done(1)
    assert not group.idle
    group.found_nothing(begun(group), EMPTY, worker)
    assert group.idle


def test_a_stopped_group_begins_no_claim(group: WorkerGroup) -> None:
    group.stop()
    assert group.begin_claim() is None
    assert not group.admit(a_worker(group))
