"""Where a row goes, for every outcome, every place under the cap, with and without a column to park in."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlqueue import DeadLetter, DecodeError, Drop, Outcome, Retry
from sqlqueue.clock import UTC
from sqlqueue.outcome import (
    ACKNOWLEDGE,
    DROP,
    FAR,
    UNREADABLE,
    Move,
    Rules,
    Settlement,
    Verdict,
    decide,
    refused,
    spent_at_claim,
)
from sqlqueue.retry import DEFAULT_RETRY, Computed, Fixed, NoRetry, RetryPolicy

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SOON = NOW + timedelta(seconds=5)

ACKNOWLEDGED = Verdict(ACKNOWLEDGE, "acknowledged")
AT_ONCE = Verdict(Settlement(Move.RETRY), "retried")
IN_FIVE = Verdict(Settlement(Move.RETRY, due=SOON), "retried")

FAILURE = ValueError("no")
UNREAD = DecodeError("no JSON")


def rules(
    cap: int | None = None,
    *,
    parks: bool = True,
    retry: RetryPolicy = Fixed(5),  # noqa: B008 - frozen
    on_decode_error: RetryPolicy = NoRetry(),  # noqa: B008 - frozen
) -> Rules:
    return Rules(max_attempts=cap, retry=retry, on_decode_error=on_decode_error, parks=parks)


def failed(why: str) -> Verdict:
    """It is tried again in five seconds, and what failed is remarked."""
    return attrs.evolve(IN_FIVE, remark=why)


def parked(text: str) -> Verdict:
    return Verdict(Settlement(Move.PARK, error=text), "parked", problem=text)


def dropped(text: str) -> Verdict:
    return Verdict(DROP, "dropped", problem=f"{text} (dropped: the table has no column to park it in)")


# -- below the cap ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", [None, 1, 2])
@pytest.mark.parametrize("cap", [None, 3])
@pytest.mark.parametrize("parks", [True, False])
@pytest.mark.parametrize(
    ("outcome", "verdict"),
    [
        (None, ACKNOWLEDGED),
        (Drop(), Verdict(DROP, "dropped")),
        (Retry(), AT_ONCE),
        (Retry(0), AT_ONCE),
        (Retry(timedelta(0)), AT_ONCE),
        (Retry(5), IN_FIVE),
        (Retry(timedelta(seconds=5)), IN_FIVE),
        (FAILURE, failed("ValueError: no")),
        (Exception(), failed("Exception")),
        (GeneratorExit(), failed("GeneratorExit")),
        ("a reply", ACKNOWLEDGED),
        (0, ACKNOWLEDGED),
    ],
)
def test_below_the_cap(outcome: Any, verdict: Verdict, attempt: int | None, cap: int | None, parks: bool) -> None:
    assert decide(rules(cap, parks=parks), attempt, outcome, NOW) == verdict


@pytest.mark.parametrize("attempt", [None, 1, 3])
def test_a_dead_letter_parks_where_it_can_be_seen_whatever_the_attempt(attempt: int | None) -> None:
    assert decide(rules(3), attempt, DeadLetter("unpaid"), NOW) == parked("unpaid")
    assert decide(rules(3, parks=False), attempt, DeadLetter("unpaid"), NOW) == dropped("unpaid")


def test_a_failure_without_retry_is_final_at_its_first_attempt() -> None:
    assert decide(rules(retry=NoRetry()), 1, FAILURE, NOW) == parked("ValueError: no")
    assert decide(rules(retry=NoRetry(), parks=False), 1, FAILURE, NOW) == dropped("ValueError: no")


# -- at the cap -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", [3, 4])
@pytest.mark.parametrize(("parks", "spent"), [(True, parked), (False, dropped)])
def test_at_the_cap_a_failure_and_a_wish_to_try_again_are_spent(
    attempt: int, parks: bool, spent: Callable[[str], Verdict]
) -> None:
    """SUITE 84"""
    capped = rules(3, parks=parks)
    asked = spent(f"asked for a retry in its last attempt ({attempt})")
    assert decide(capped, attempt, FAILURE, NOW) == spent("ValueError: no")
    assert decide(capped, attempt, Retry(), NOW) == asked
    assert decide(capped, attempt, Retry(5), NOW) == asked


def test_at_the_cap_an_acknowledgement_and_a_drop_are_what_they_were() -> None:
    assert decide(rules(3), 3, None, NOW) == ACKNOWLEDGED
    assert decide(rules(3), 3, Drop(), NOW) == Verdict(DROP, "dropped")


@pytest.mark.parametrize("attempt", [None, 1, 3])
def test_a_row_within_its_attempts_is_handled(attempt: int | None) -> None:
    assert spent_at_claim(rules(3), attempt) is None
    assert spent_at_claim(rules(None), 1000) is None


def test_a_row_past_its_attempts_when_claimed_has_lost_its_worker() -> None:
    """PAINS 4"""
    assert spent_at_claim(rules(3), 4) == parked("the worker was lost in the last of 3 attempts")
    assert spent_at_claim(rules(3, parks=False), 4) == dropped("the worker was lost in the last of 3 attempts")


# -- rows that cannot be read -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("attempt", "cap"), [(None, None), (1, None), (1, 3), (3, 3)])
def test_an_unreadable_row_is_parked_else_kept_hidden_and_told_but_never_deleted(
    attempt: int | None, cap: int | None
) -> None:
    """SUITE 97"""
    assert decide(rules(cap), attempt, UNREAD, NOW) == parked("sqlqueue.errors.DecodeError: no JSON")
    assert decide(rules(cap, parks=False), attempt, UNREAD, NOW) == Verdict(
        Settlement(Move.RETRY, due=NOW + timedelta(seconds=UNREADABLE)),
        "retried",
        problem="no JSON (kept, hidden for 3600 s: the table has no column to park it in)",
    )


def test_a_decode_policy_that_retries_counts_attempts_and_is_spent_at_the_cap() -> None:
    """SUITE 98"""
    trying = rules(3, retry=NoRetry(), on_decode_error=Fixed(5))
    assert [decide(trying, attempt, UNREAD, NOW).kind for attempt in (1, 2, 3)] == ["retried", "retried", "parked"]
    assert decide(trying, 1, UNREAD, NOW) == failed("sqlqueue.errors.DecodeError: no JSON")


def test_the_decode_policy_decides_for_unreadable_rows_only() -> None:
    assert decide(rules(on_decode_error=Fixed(999)), 1, FAILURE, NOW) == failed("ValueError: no")


# -- policies ---------------------------------------------------------------------------------------------------


def test_the_policy_is_asked_with_the_attempt_and_the_error() -> None:
    asked: list[tuple[int, BaseException]] = []

    def after(attempt: int, error: BaseException) -> float:
        asked.append((attempt, error))
        return 5

    decide(rules(retry=Computed(after)), 7, FAILURE, NOW)
    decide(rules(retry=Computed(after)), None, FAILURE, NOW)
    assert asked == [(7, FAILURE), (1, FAILURE)]


class Wrong:
    """A policy that answers what is no delay."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def delay(self, attempt: int, error: BaseException) -> float | None:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


@pytest.mark.parametrize("answer", [-1, float("nan"), float("inf"), "soon", True, KeyError("setting")])
def test_a_policy_that_fails_is_replaced_by_the_default_and_told(answer: Any) -> None:
    verdict = decide(rules(retry=Wrong(answer)), 4, FAILURE, NOW)
    due = verdict.settlement.due
    assert verdict.settlement.move is Move.RETRY
    assert due is not None
    assert NOW + timedelta(seconds=4) <= due <= NOW + timedelta(seconds=8)
    assert (verdict.problem or "").startswith("its retry policy failed, so the default one decided: ")


def test_a_delay_beyond_every_calendar_is_cut() -> None:
    assert decide(rules(retry=Fixed(1e300)), 1, FAILURE, NOW) == Verdict(
        Settlement(Move.RETRY, due=FAR), "retried", remark="ValueError: no"
    )


@pytest.mark.parametrize("after", [-1, 1e300, float("nan"), "soon", True])
def test_a_retry_that_asks_for_no_delay_is_refused_where_it_is_made(after: Any) -> None:
    with pytest.raises(ValueError, match=r"^Retry\(after\) is "):
        Retry(after)


OUTCOMES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.builds(Drop, st.none() | st.text()),
    st.builds(DeadLetter, st.text()),
    st.builds(Retry, st.none() | st.floats(0, 1e9) | st.timedeltas(timedelta(0), timedelta(days=999))),
    st.sampled_from([ValueError, KeyError, DecodeError, OSError]).flatmap(lambda kind: st.builds(kind, st.text())),
    st.text(),
)


@given(
    OUTCOMES,
    st.none() | st.integers(1, 9),
    st.none() | st.integers(1, 5),
    st.booleans(),
    st.sampled_from([DEFAULT_RETRY, Fixed(5), Fixed(0), NoRetry(), Wrong("soon")]),
)
def test_whatever_comes_no_row_is_parked_without_a_column_nor_tried_past_its_cap(
    outcome: Any, attempt: int | None, cap: int | None, parks: bool, policy: RetryPolicy
) -> None:
    verdict = decide(rules(cap, parks=parks, retry=policy, on_decode_error=policy), attempt, outcome, NOW)
    settlement = verdict.settlement
    spent = cap is not None and attempt is not None and attempt >= cap
    assert (settlement.error is not None) == (settlement.move is Move.PARK)
    assert parks or settlement.move is not Move.PARK
    assert settlement.due is None or settlement.due >= NOW
    if settlement.move is Move.RETRY and spent:
        assert isinstance(outcome, DecodeError)
        assert not parks
    if settlement.move is Move.FINISH and isinstance(outcome, Exception) and not isinstance(outcome, Drop):
        assert not isinstance(outcome, DecodeError)
        assert not parks
        assert verdict.problem
    assert settlement.move is not Move.RELEASE


def test_an_outcome_may_be_raised_as_well_as_returned() -> None:
    for outcome in (Retry(3), Drop("old"), DeadLetter("bad")):
        with pytest.raises(type(outcome)) as caught:
            raise outcome
        assert caught.value is outcome
    outcomes: list[Outcome] = [None, Retry(), Drop(), DeadLetter()]
    assert [getattr(one, "reason", "") for one in outcomes] == ["", "", None, "dead-lettered by its handler"]


# -- dead letters -----------------------------------------------------------------------------------------------


def moving(cap: int | None = None, *, parks: bool = True) -> Rules:
    return attrs.evolve(rules(cap, parks=parks, retry=NoRetry()), dead_letter="jobs[failed]")


def moved(text: str) -> Verdict:
    return Verdict(Settlement(Move.DEAD_LETTER, error=text), "dead_lettered", f"{text} (moved to jobs[failed])")


@pytest.mark.parametrize("parks", [True, False])
@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (DeadLetter("unpaid"), "unpaid"),
        (FAILURE, "ValueError: no"),
        (Retry(), "asked for a retry in its last attempt (3)"),
        (UNREAD, "sqlqueue.errors.DecodeError: no JSON"),
    ],
)
def test_where_there_is_a_dead_letter_it_goes_before_parking(outcome: Any, text: str, parks: bool) -> None:
    assert decide(moving(3, parks=parks), 3, outcome, NOW) == moved(text)


def test_a_row_that_is_spent_when_it_is_claimed_goes_there_too() -> None:
    assert spent_at_claim(moving(2), 3) == moved("the worker was lost in the last of 2 attempts")


def test_a_refused_settlement_is_a_failure_of_the_row() -> None:
    assert refused(moving(), 1, ACKNOWLEDGED, FAILURE, NOW) == moved("ValueError: no")
    assert refused(rules(), 1, ACKNOWLEDGED, FAILURE, NOW) == failed("ValueError: no")


def test_a_refused_dead_letter_is_parked_or_kept_hidden_and_never_tried_again() -> None:
    text = "unpaid\ncould not be moved to jobs[failed]: ValueError: no"
    assert refused(moving(), 1, moved("unpaid"), FAILURE, NOW) == parked(text)
    kept = refused(moving(parks=False), 1, moved("unpaid"), FAILURE, NOW)
    assert kept.settlement == Settlement(Move.RETRY, due=NOW + timedelta(seconds=UNREADABLE))
    assert kept.problem is not None
    assert text in kept.problem
