"""The states of a consumer: which move is allowed from where, and in which process."""

import os

import pytest

from sqlqueue import SQLQueueError
from sqlqueue.consumer.lifecycle import ALLOWED, Lifecycle, State

NEW, STARTING, RUNNING, STOPPING, STOPPED = State


def test_a_run_goes_through_every_state_and_may_begin_again() -> None:
    lifecycle = Lifecycle()
    states = [lifecycle.state]
    for state in (STARTING, RUNNING, STOPPING, STOPPED, STARTING, STOPPED, STARTING):
        lifecycle.move(state)
        states.append(lifecycle.state)
    assert states == [NEW, STARTING, RUNNING, STOPPING, STOPPED, STARTING, STOPPED, STARTING]


@pytest.mark.parametrize("start", State)
@pytest.mark.parametrize("end", State)
def test_every_other_move_is_refused_and_changes_nothing(start: State, end: State) -> None:
    lifecycle = Lifecycle(start)
    if end in ALLOWED[start]:
        lifecycle.move(end)
        assert lifecycle.state is end
        return
    with pytest.raises(SQLQueueError, match=f"^the consumer is {start.value}"):
        lifecycle.move(end)
    assert lifecycle.state is start


@pytest.mark.parametrize("state", [one for one in State if one is not NEW])
def test_a_started_consumer_is_refused_in_another_process(state: State) -> None:
    """PAINS 15"""
    lifecycle = Lifecycle(state, os.getpid() + 1)
    with pytest.raises(SQLQueueError) as caught:
        lifecycle.check_process()
    assert str(caught.value) == (
        f"the consumer was started in process {os.getpid() + 1} and this is its child {os.getpid()}, which has none of "
        "its threads; make a consumer in the child"
    )


def test_a_new_consumer_may_be_started_in_the_child() -> None:
    lifecycle = Lifecycle(NEW, os.getpid() + 1)
    lifecycle.check_process()
    lifecycle.move(STARTING)
    lifecycle.check_process()
