"""How a dispatcher ends: what workers hand it behind its last step is reported, and workers hear of the end."""

from collections.abc import Callable
from unittest.mock import create_autospec

import pytest

from sqlqueue import Delivery
from sqlqueue.consumer.budget import Database
from sqlqueue.consumer.dispatcher import Dispatcher
from sqlqueue.consumer.in_flight import InFlight, LeaseTimer
from sqlqueue.consumer.polling import PollTimer
from sqlqueue.consumer.run_handler import Finished, Runner, Work
from sqlqueue.consumer.workers import WorkerThreads
from sqlqueue.observers import Observers
from sqlqueue.outcome import ACKNOWLEDGED
from sqlqueue.strategies.claim import Claim
from sqlqueue.testing import Recorder


def run(recorder: Recorder, last_step: Callable[[Dispatcher], bool]) -> tuple[Dispatcher, InFlight, list[object]]:
    """The dispatcher's thread from its only step to its end, and what it says ends the run."""

    class Ending(Dispatcher):
        def step(self) -> bool:
            return last_step(self)

    in_flight = InFlight(workers=2, prefetch=0, by_key=False)
    dispatcher = Ending(
        queue="jobs",
        database=create_autospec(Database, instance=True),
        runner=create_autospec(Runner, instance=True, observers=Observers("jobs", [recorder])),
        in_flight=in_flight,
        poll_timer=PollTimer(1),
        lease_timer=LeaseTimer(30),
        workers=WorkerThreads("jobs", 2),
    )
    ends: list[object] = []
    dispatcher._run(ends.append)
    return dispatcher, in_flight, ends


def a_row(id: int) -> Work:
    return Work(Delivery("jobs", Claim(id=id, token=None, expires=None, attempt=1, row=())))


def hand_over(dispatcher: Dispatcher, id: int) -> None:
    work = a_row(id)
    dispatcher.finish([work], [Finished(work, ACKNOWLEDGED)])


def test_rows_that_come_behind_the_last_step_or_after_the_end_are_late() -> None:
    recorder = Recorder()

    def last_step(dispatcher: Dispatcher) -> bool:
        hand_over(dispatcher, 1)
        return False

    dispatcher, in_flight, ends = run(recorder, last_step)
    hand_over(dispatcher, 2)
    assert [(event.kind, event.id) for event in recorder.events] == [("lease_lost", 1), ("lease_lost", 2)]
    assert [in_flight.ready.get_nowait() for _ in range(2)] == [None, None]
    assert ends == []


def test_a_dispatcher_that_fails_ends_the_run_and_its_workers(caplog: pytest.LogCaptureFixture) -> None:
    recorder = Recorder()
    error = AssertionError("a bug")

    def last_step(dispatcher: Dispatcher) -> bool:
        hand_over(dispatcher, 1)
        raise error

    dispatcher, in_flight, ends = run(recorder, last_step)
    assert (dispatcher.stopping, ends) == (True, [error])
    assert [event.kind for event in recorder.events] == ["lease_lost"]
    assert [in_flight.ready.get_nowait() for _ in range(2)] == [None, None]
    assert "queue jobs: its dispatcher failed" in caplog.text
