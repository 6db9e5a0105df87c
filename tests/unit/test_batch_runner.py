"""Handle: the rows of a batch are read and given to their handler as one list, and each gets a verdict."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from sqlqueue import DeadLetter, Delivery, Drop, Retry
from sqlqueue.consumer.run_handler import Finished, Runner, Work
from sqlqueue.delivery import Reader
from sqlqueue.observers import Observers
from sqlqueue.outcome import Rules
from sqlqueue.retry import Fixed, NoRetry
from sqlqueue.strategies.claim import Claim
from sqlqueue.testing import Recorder
from tests.unit.test_runner import NOW, Handle, read_number


def run(
    handle: Handle, *stored: str, attempts: Sequence[int] = (), cap: int | None = None, parks: bool = True
) -> tuple[list[Finished], Recorder]:
    """Run a batch whose rows hold `stored`; what became of them, by id from 1."""
    recorder = Recorder()
    runner = Runner(
        queue="jobs",
        reader=Reader((), None, (), read_number),
        rules=Rules(max_attempts=cap, retry=Fixed(5), on_decode_error=NoRetry(), parks=parks),
        now=lambda: NOW,
        observers=Observers("jobs", [recorder]),
        call=handle,
        batch=True,
    )
    counts = attempts or [1] * len(stored)
    claims = [
        Claim(id=id, token=NOW, expires=NOW, attempt=counts[id - 1], row=(text,)) for id, text in enumerate(stored, 1)
    ]
    finished = runner.run([Work(Delivery("jobs", claim)) for claim in claims])
    return sorted(finished, key=lambda one: int(one.work.delivery.claim.id)), recorder


def kinds(finished: Sequence[Finished]) -> list[str]:
    return [one.verdict.kind for one in finished]


def test_a_handler_gets_its_messages_and_their_deliveries_and_returning_none_acknowledges_all() -> None:
    seen: list[Any] = []

    def handle(messages: Any, deliveries: Any) -> None:
        seen.append((messages, [delivery.attempt for delivery in deliveries]))

    finished, recorder = run(handle, "7", "8", attempts=[3, 1])
    assert seen == [([7, 8], [3, 1])]
    assert kinds(finished) == ["acknowledged"] * 2
    assert all(one.seconds is not None for one in finished)
    assert [(event.kind, event.id) for event in recorder.events] == [("started", 1), ("started", 2)]


@pytest.mark.parametrize("form", [list, tuple])
def test_each_row_has_its_own_outcome(form: Any) -> None:
    outcomes = form([None, Retry(5), Drop(), DeadLetter(), KeyError("amount"), [], "done"])
    finished, _ = run(lambda messages, deliveries: outcomes, *"1234567")
    assert kinds(finished) == [
        "acknowledged",
        "retried",
        "dropped",
        "parked",
        "retried",
        "acknowledged",
        "acknowledged",
    ]


def test_what_is_no_outcome_counts_as_done_and_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    run(lambda messages, deliveries: ["done"] * 3, *"123")
    (line,) = caplog.messages
    assert "returned 'done', which is no outcome and counts as done" in line


def test_an_exception_among_the_outcomes_is_logged_for_its_row_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "sqlqueue"):
        run(lambda messages, deliveries: [None, KeyError("amount"), Retry()], *"123")
    assert caplog.messages == ["queue jobs: row 2: the handler failed"]


def test_a_failure_counts_for_all_and_names_the_first_of_many_rows(caplog: pytest.LogCaptureFixture) -> None:
    def handle(messages: Any, deliveries: Any) -> None:
        messages.clear()
        deliveries.clear()
        raise KeyError("amount")

    with caplog.at_level(logging.ERROR, "sqlqueue"):
        finished, _ = run(handle, *["1"] * 25)
    assert kinds(finished) == ["retried"] * 25
    first = ", ".join(str(id) for id in range(1, 21))
    assert caplog.messages == [f"queue jobs: rows {first} and 5 more: the handler failed on their batch"]


@pytest.mark.parametrize(
    "returned",
    [[None], [None] * 3, [], {1: None}, 0, False, Retry(), KeyError("amount"), "no", b"no", iter([None] * 2)],
)
def test_what_does_not_name_an_outcome_for_each_row_fails_all_of_them(returned: Any) -> None:
    finished, _ = run(lambda messages, deliveries: returned, "1", "2", cap=1)
    assert kinds(finished) == ["parked"] * 2
    for one in finished:
        assert str(one.verdict.settlement.error).startswith("ValueError: the handler returned ")
        assert "its batch of 2 rows" in str(one.verdict.settlement.error)


def test_a_row_that_cannot_be_read_is_settled_beside_the_others_whose_outcomes_keep_their_places() -> None:
    finished, recorder = run(lambda messages, deliveries: [Drop(), None], "1", "x", "3")
    assert kinds(finished) == ["dropped", "parked", "acknowledged"]
    assert [event.id for event in recorder.of("started")] == [1, 3]


def test_rows_that_are_spent_or_cannot_be_read_never_reach_the_handler() -> None:
    def never(messages: Any, deliveries: Any) -> None:
        raise AssertionError(f"the handler ran with {messages!r}")

    for parks, expected in ((True, ["parked", "parked"]), (False, ["dropped", "retried"])):
        finished, recorder = run(never, "1", "x", attempts=[3, 3], cap=2, parks=parks)
        assert kinds(finished) == expected
        assert recorder.events == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), SystemExit(3)], ids=repr)
def test_a_handler_that_asks_for_the_end_gives_its_rows_back_and_says_so_once(stop: BaseException) -> None:
    def handle(messages: Any, deliveries: Any) -> None:
        raise stop

    finished, _ = run(handle, "1", "x", "3")
    assert kinds(finished) == ["released", "parked", "released"]
    assert [one.stop for one in finished if one.stop is not None] == [stop]
