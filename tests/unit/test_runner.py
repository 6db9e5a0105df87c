"""Handle: a row is read and given to its handler, and whatever comes of it is a verdict."""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from sqlqueue import DecodeError, Delivery, Retry
from sqlqueue.clock import UTC
from sqlqueue.consumer.run_handler import Finished, Runner, Work
from sqlqueue.delivery import Reader
from sqlqueue.observers import Observers
from sqlqueue.outcome import Move, Rules
from sqlqueue.retry import Fixed, NoRetry
from sqlqueue.strategies.claim import Claim
from sqlqueue.testing import Recorder

NOW = datetime(2030, 1, 1, tzinfo=UTC)

Handle = Callable[[Any, Delivery], Any]


def read_number(row: tuple[Any, ...]) -> int:
    try:
        return int(row[0])
    except ValueError as error:
        raise DecodeError(f"{row[0]!r} is no number") from error


def run(
    handle: Handle, stored: str = "7", *, attempt: int = 1, cap: int | None = None, parks: bool = True
) -> tuple[Finished, Recorder]:
    """Run one row that holds `stored`, whose handler takes a number."""
    recorder = Recorder()
    runner = Runner(
        queue="jobs",
        reader=Reader((), None, (), read_number),
        rules=Rules(max_attempts=cap, retry=Fixed(5), on_decode_error=NoRetry(), parks=parks),
        now=lambda: NOW,
        observers=Observers("jobs", [recorder]),
        call=handle,
    )
    claim = Claim(id=1, token=NOW, expires=NOW, attempt=attempt, row=(stored,))
    (finished,) = runner.run([Work(Delivery("jobs", claim))])
    return finished, recorder


def never(message: Any, delivery: Delivery) -> None:
    raise AssertionError(f"the handler ran with {message!r}")


def move(finished: Finished) -> Move:
    return finished.verdict.settlement.move


def test_a_handler_gets_the_message_and_its_delivery_and_returning_none_acknowledges() -> None:
    seen: list[Any] = []
    finished, recorder = run(lambda message, delivery: seen.append((message, delivery.attempt)), attempt=3)
    assert seen == [(7, 3)]
    assert finished.verdict.kind == "acknowledged"
    assert finished.seconds is not None
    assert [event.kind for event in recorder.events] == ["started"]


@pytest.mark.parametrize("how", ["raised", "returned"])
def test_an_outcome_counts_raised_as_well_as_returned(how: str) -> None:
    def handle(message: Any, delivery: Delivery) -> Any:
        if how == "raised":
            raise Retry(5)
        return Retry(5)

    assert move(run(handle)[0]) is Move.RETRY


def test_a_failure_is_logged_with_its_traceback_and_settled_by_the_policy(caplog: pytest.LogCaptureFixture) -> None:
    def handle(message: Any, delivery: Delivery) -> None:
        raise KeyError("amount")

    assert move(run(handle)[0]) is Move.RETRY
    (record,) = caplog.records
    assert (record.levelno, record.name, record.exc_info is not None) == (logging.ERROR, "sqlqueue", True)


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(3)])
def test_a_handler_that_ends_the_program_gives_its_row_back(stop: BaseException) -> None:
    def handle(message: Any, delivery: Delivery) -> None:
        raise stop

    finished, _ = run(handle)
    assert move(finished) is Move.RELEASE
    assert finished.stop is stop


def test_a_row_that_cannot_be_read_never_reaches_its_handler() -> None:
    """SUITE 96"""
    finished, recorder = run(never, "seven")
    assert move(finished) is Move.PARK
    assert recorder.events == []


@pytest.mark.parametrize(("parks", "kind"), [(True, "parked"), (False, "dropped")])
def test_a_row_whose_last_worker_was_lost_is_spent_unhandled(parks: bool, kind: str) -> None:
    """PAINS 4"""
    finished, _ = run(never, attempt=4, cap=3, parks=parks)
    assert finished.verdict.kind == kind
    assert "the worker was lost in the last of 3 attempts" in (finished.verdict.problem or "")


def test_a_row_that_cannot_be_read_is_not_dropped_past_its_cap_either() -> None:
    finished, _ = run(never, "seven", attempt=4, cap=3, parks=False)
    assert move(finished) is Move.RETRY
    assert "'seven' is no number" in (finished.verdict.problem or "")


def test_a_row_past_its_cap_is_parked_unread_so_that_reading_it_kills_no_second_worker() -> None:
    finished, _ = run(never, "seven", attempt=4, cap=3)
    assert (finished.verdict.problem or "").startswith("the worker was lost")


def test_what_is_no_outcome_counts_as_done_and_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    finished, _ = run(lambda message, delivery: "a reply")
    assert finished.verdict.kind == "acknowledged"
    assert "'a reply', which is no outcome" in caplog.text
