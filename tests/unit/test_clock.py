"""Durations and moments: what is taken, and what is refused by the name of the argument that it came in."""

from datetime import date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlqueue import Clock, DatabaseClock, HostClock
from sqlqueue.clock import LONGEST_DELAY, UTC, delay_seconds, later, seconds, utc
from sqlqueue.testing import ManualClock

NOW = datetime(2030, 1, 1, tzinfo=UTC)

ZONES = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).map(timezone)
AWARE = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=ZONES)  # noqa: DTZ001 - bounds are naive


class Nowhere(tzinfo):
    """A zone that does not know its own offset, so that its datetimes are as good as naive."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return None


@given(st.one_of(st.integers(0, 10**300), st.floats(0, allow_infinity=False, allow_nan=False)))
def test_seconds_from_zero_up_are_a_float_as_they_are(value: float) -> None:
    taken = seconds(value)
    assert (type(taken), taken) == (float, float(value))


@given(st.timedeltas(timedelta(0)))
def test_a_timedelta_is_taken_as_its_seconds(value: timedelta) -> None:
    assert seconds(value) == value.total_seconds()


@pytest.mark.parametrize("value", [-1, -0.001, timedelta(microseconds=-1), float("inf"), float("nan"), 10**400])
def test_a_negative_or_endless_duration_is_refused_by_its_name(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^the pause is .*; give seconds from 0 up$"):
        seconds(value, "the pause")


@pytest.mark.parametrize("value", [True, False, "1", None, Decimal(1), 1j])
def test_what_is_no_number_is_refused_a_bool_too(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^the pause is .*; give seconds as a number, or a timedelta$"):
        seconds(value, "the pause")


@given(AWARE, st.timedeltas(timedelta(0), timedelta(days=300)))
def test_later_adds_exactly(moment: datetime, delay: timedelta) -> None:
    assert later(moment, delay) == moment + delay


@pytest.mark.parametrize("delay", [1e12, 10**400, timedelta.max, 9e307])
def test_a_delay_past_the_last_year_is_a_value_error(delay: Any) -> None:
    with pytest.raises(ValueError, match=r"^delay is "):
        later(NOW, delay)


@pytest.mark.parametrize("delay", [-1, float("nan"), True, "soon"])
def test_a_delay_that_is_no_duration_is_a_value_error(delay: Any) -> None:
    with pytest.raises(ValueError, match=r"^delay is "):
        later(NOW, delay)


def test_a_delay_by_the_databases_clock_is_its_seconds_as_far_as_no_year_overflows() -> None:
    assert [delay_seconds(delay) for delay in (0, 90, timedelta(minutes=1.5))] == [0.0, 90.0, 90.0]
    assert delay_seconds(LONGEST_DELAY) == LONGEST_DELAY
    end_of_2099 = datetime(2099, 12, 31, 23, 59, tzinfo=UTC)
    assert later(end_of_2099, LONGEST_DELAY).year == 9999


@pytest.mark.parametrize("delay", [LONGEST_DELAY + 1, 1e12, timedelta.max, -1, float("nan"), True, "soon"])
def test_a_delay_that_might_overflow_by_the_databases_clock_is_a_value_error(delay: Any) -> None:
    with pytest.raises(ValueError, match=r"^delay is "):
        delay_seconds(delay)


@given(AWARE)
def test_an_aware_moment_stays_the_same_instant_in_utc(moment: datetime) -> None:
    taken = utc(moment)
    assert taken == moment
    assert taken.tzinfo is UTC


@pytest.mark.parametrize("moment", [datetime(2030, 1, 1), datetime(2030, 1, 1, tzinfo=Nowhere())])  # noqa: DTZ001
def test_a_naive_moment_is_refused_with_the_way_to_an_aware_one(moment: datetime) -> None:
    with pytest.raises(ValueError, match=r"^at is .* names no time zone; give an aware datetime, such as datetime.now"):
        utc(moment, "at")


@pytest.mark.parametrize("moment", [date(2030, 1, 1), "2030-01-01", 0, None])
def test_what_is_no_moment_is_refused(moment: Any) -> None:
    with pytest.raises(ValueError, match=r"^at is .*; give an aware datetime$"):
        utc(moment, "at")


@pytest.mark.parametrize(
    "moment",
    [
        datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
        datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))),
    ],
)
def test_a_moment_that_utc_cannot_hold_is_refused(moment: datetime) -> None:
    with pytest.raises(ValueError, match=r"^at is .* outside of the years 1 to 9999"):
        utc(moment, "at")


def test_the_hosts_clock_tells_aware_utc() -> None:
    before = datetime.now(UTC)
    now = HostClock().now()
    assert before <= now <= datetime.now(UTC)
    assert now.tzinfo is UTC


def test_whatever_has_a_now_is_a_clock_and_the_databases_is_none_of_the_hosts() -> None:
    assert isinstance(HostClock(), Clock)
    assert isinstance(ManualClock(), Clock)
    assert not isinstance(DatabaseClock(), Clock)
    assert DatabaseClock() == DatabaseClock()


def test_the_manual_clock_stands_still_moves_both_ways_and_tells_that_it_did() -> None:
    clock = ManualClock(NOW)
    seen: list[datetime] = []
    clock.on_change(lambda: seen.append(clock.now()))
    assert clock.now() == clock.now() == NOW
    assert clock.advance(90) == NOW + timedelta(seconds=90)
    assert clock.advance(timedelta(seconds=-100)) == NOW - timedelta(seconds=10)
    assert clock.set(NOW) == NOW
    assert seen == [NOW + timedelta(seconds=90), NOW - timedelta(seconds=10), NOW]
    assert clock.reads == 5


def test_a_callback_that_was_removed_is_called_no_more() -> None:
    clock = ManualClock(NOW)
    seen: list[str] = []
    forget = clock.on_change(lambda: seen.append("removed"))
    clock.on_change(lambda: seen.append("there"))
    clock.advance(1)
    forget()
    clock.advance(1)
    assert seen == ["removed", "there", "there"]


def test_the_manual_clock_takes_no_naive_moment() -> None:
    with pytest.raises(ValueError, match="names no time zone"):
        ManualClock(datetime(2030, 1, 1))  # noqa: DTZ001
