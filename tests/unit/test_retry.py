"""How long a failed row waits: pure functions from the attempt, and the forms that `retry=` takes."""

import json
from datetime import timedelta
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlqueue.errors import DecodeError
from sqlqueue.retry import DEFAULT_RETRY, Computed, Exponential, Fixed, NoRetry, policy

ERROR = ValueError("no")
ATTEMPTS = st.integers(-1, 10**6)


@attrs.frozen
class Own:
    """A policy of the user's."""

    def delay(self, attempt: int, error: BaseException) -> float | None:
        return attempt * 2.0


def test_the_default_is_one_second_doubling_to_an_hour() -> None:
    calm = attrs.evolve(DEFAULT_RETRY, jitter=0)
    assert [calm.delay(attempt) for attempt in (1, 2, 3, 12, 13, 14, 10**6)] == [1, 2, 4, 2048, 3600, 3600, 3600]


@given(
    ATTEMPTS,
    st.floats(0, 1e300),
    st.floats(1, 1e6),
    st.floats(0, 1e300),
    st.floats(0, 1),
)
def test_the_delay_lies_between_its_share_and_the_whole_and_never_past_the_most(
    attempt: int, first: float, factor: float, most: float, jitter: float
) -> None:
    delay = Exponential(first=first, factor=factor, most=most, jitter=jitter).delay(attempt)
    whole = Exponential(first=first, factor=factor, most=most, jitter=0).delay(attempt)
    assert whole * (1 - jitter) <= delay <= whole <= most
    assert whole <= first or attempt > 1


@given(ATTEMPTS, st.floats(0, 1e300), st.floats(1, 1e6))
def test_without_jitter_no_attempt_waits_less_than_the_one_before(attempt: int, first: float, factor: float) -> None:
    calm = Exponential(first=first, factor=factor, jitter=0)
    assert calm.delay(attempt) <= calm.delay(attempt + 1)


def test_jitter_spreads_rows_that_failed_together() -> None:
    assert len({Exponential(jitter=0.5).delay(3) for _ in range(50)}) > 1


@given(ATTEMPTS)
def test_a_fixed_delay_is_the_same_for_every_attempt(attempt: int) -> None:
    assert Fixed(2.5).delay(attempt) == Fixed(timedelta(seconds=2.5)).delay(attempt) == 2.5


def test_no_retry_gives_the_row_up() -> None:
    delay: Any = NoRetry().delay(1)  # type: ignore[func-returns-value]
    assert delay is None


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"first": -1}, "first is -1; "),
        ({"first": float("nan")}, "first is nan; "),
        ({"most": float("inf")}, "most is inf; "),
        ({"most": True}, "most is True; "),
        ({"factor": 0.5}, "factor is 0.5; "),
        ({"factor": float("nan")}, "factor is nan; "),
        ({"factor": float("inf")}, "factor is inf; "),
        ({"factor": "2"}, "factor is '2'; "),
        ({"jitter": -0.1}, "jitter is -0.1; "),
        ({"jitter": 1.1}, "jitter is 1.1; "),
        ({"jitter": float("nan")}, "jitter is nan; "),
        ({"jitter": None}, "jitter is None; "),
    ],
)
def test_a_setting_out_of_bounds_is_refused_by_its_name(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        Exponential(**settings)


@pytest.mark.parametrize("after", [-1, float("nan"), "soon", True])
def test_a_fixed_delay_that_is_no_duration_is_refused(after: Any) -> None:
    with pytest.raises(ValueError, match=r"^a fixed delay is "):
        Fixed(after)


def test_a_function_decides_by_attempt_and_exception() -> None:
    def after(attempt: int, error: BaseException) -> float | timedelta | None:
        if isinstance(error, KeyError):
            return None
        return timedelta(minutes=attempt) if isinstance(error, OSError) else 0.5

    decided = policy(after)
    assert decided == Computed(after)
    assert decided.delay(3, KeyError("gone")) is None
    assert decided.delay(3, OSError("away")) == 180
    assert decided.delay(3, ERROR) == 0.5


def test_a_functions_delay_that_is_none_is_an_error_of_its_own() -> None:
    with pytest.raises(ValueError, match=r"^the retry function's delay is -1; "):
        Computed(lambda attempt, error: -1).delay(1, ERROR)


def test_retry_takes_a_policy_a_function_a_delay_or_none() -> None:
    assert policy(None) == NoRetry()
    assert policy(5) == Fixed(5)
    assert policy(timedelta(minutes=1)) == Fixed(60)
    assert policy(Own()) == Own()
    assert policy(DEFAULT_RETRY) is DEFAULT_RETRY


def test_a_mapping_decides_by_the_nearest_class_of_the_exception() -> None:
    decided = policy({OSError: 5, ConnectionError: None, LookupError: Own(), KeyError: lambda attempt, _: attempt})
    expected: list[tuple[BaseException, float | None]] = [
        (OSError(), 5),
        (TimeoutError(), 5),
        (ConnectionError(), None),
        (ConnectionResetError(), None),
        (IndexError(), 6),
        (KeyError(), 3),
    ]
    assert [(error, decided.delay(3, error)) for error, _ in expected] == expected


def undecoded(cause: BaseException | None) -> DecodeError:
    error = DecodeError("no")
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("mapping", "seconds"),
    [
        ({json.JSONDecodeError: 60}, 60),
        ({json.JSONDecodeError: 60, DecodeError: 5}, 60),
        ({ValueError: 60}, 60),
        ({DecodeError: 5, Exception: 7}, 5),
        ({Exception: 7}, 7),
        ({KeyError: 60}, 1),
    ],
)
def test_what_cannot_be_decoded_goes_by_what_it_came_from(mapping: Any, seconds: float) -> None:
    chosen = policy(mapping, Fixed(1))
    assert chosen.delay(1, undecoded(json.JSONDecodeError("no", "", 0))) == seconds
    assert policy({DecodeError: 5}).delay(1, undecoded(None)) == 5


def test_only_a_decode_error_goes_by_its_cause() -> None:
    error = RuntimeError("no")
    error.__cause__ = KeyError("no")
    assert policy({KeyError: 60}, Fixed(1)).delay(1, error) == 1


def test_an_exception_that_a_mapping_does_not_name_goes_by_the_default() -> None:
    assert policy({OSError: 5}, NoRetry()).delay(1, ERROR) is None
    assert policy({OSError: 5}, Fixed(7)).delay(1, ERROR) == 7
    assert policy({}).delay(1, ERROR) is not None


@pytest.mark.parametrize("key", ["OSError", OSError(), int, None])
def test_a_key_that_is_no_exception_class_is_refused(key: Any) -> None:
    with pytest.raises(ValueError, match=r" is no exception class; give classes of exceptions as keys$"):
        policy({key: 5})


@pytest.mark.parametrize("given", [Exponential, NoRetry, Own, ValueError])
def test_a_class_in_place_of_a_policy_is_refused_with_the_call_that_is_missing(given: Any) -> None:
    name = given.__qualname__
    with pytest.raises(ValueError, match=rf"^{name} is a class; give an object of it, such as {name}\(\)$"):
        policy(given)


@pytest.mark.parametrize("given", ["soon", -1, True, [1]])
def test_what_is_none_of_these_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"^a fixed delay is "):
        policy(given)
