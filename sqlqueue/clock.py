"""Clocks, durations and moments: where *now* comes from, and how columns hold moments."""

import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol, runtime_checkable

import attrs

UTC = timezone.utc

#: Seconds as a number, or a timedelta.
Duration = float | timedelta

#: The longest duration, in seconds, as a float holds it.
LONGEST = sys.float_info.max

#: The longest delay by the database's clock, in seconds: begun before 2100, it ends within the year 9999.
LONGEST_DELAY = (datetime(9999, 12, 31, tzinfo=UTC) - datetime(2100, 1, 1, tzinfo=UTC)).total_seconds()


@runtime_checkable
class Clock(Protocol):
    """A source of *now* on the host's side.

    `now()` returns an aware datetime in UTC. A clock that can jump may offer `on_change(callback)`: consumers then look
    again whenever it calls back. `on_change` may return a function that removes the callback; a consumer calls that
    when it stops.
    """

    def now(self) -> datetime: ...


@attrs.frozen
class HostClock:
    """The host's clock (the default)."""

    def now(self) -> datetime:
        return datetime.now(UTC)


@attrs.frozen
class DatabaseClock:
    """The database's clock: statements read it themselves, so hosts need no common clock."""


ClockSource = Clock | DatabaseClock


def seconds(duration: Duration, what: str = "a duration") -> float:
    """`duration` in seconds; a negative, endless or non-numeric one is a `ValueError` that names `what`."""
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{what} is {duration!r}; give seconds as a number, or a timedelta")
    if not 0 <= value <= LONGEST:
        raise ValueError(f"{what} is {duration!r:.60}; give seconds from 0 up")
    return float(value)


def later(moment: datetime, delay: Duration, what: str = "delay") -> datetime:
    """`moment` plus `delay`; a negative or overflowing delay is a `ValueError`."""
    try:
        return moment + timedelta(seconds=seconds(delay, what))
    except OverflowError:
        raise ValueError(f"{what} is {delay!r}, which leads past the last year that a datetime holds") from None


def delay_seconds(delay: Duration) -> float:
    """`delay` in seconds for the database's clock; a negative or overflowing one is a `ValueError`.

    That clock is not known here, so every delay is refused that could overflow before the year 2100.
    """
    wait = seconds(delay, "delay")
    if wait > LONGEST_DELAY:
        raise ValueError(
            f"delay is {delay!r}, which may lead past the last year that a datetime holds; by the database's clock "
            f"give at most {LONGEST_DELAY:.0f} seconds"
        )
    return wait


def utc(moment: datetime, what: str = "a moment") -> datetime:
    """`moment` in UTC; a naive one is a `ValueError` that names `what`."""
    if not isinstance(moment, datetime):
        raise ValueError(f"{what} is {moment!r}; give an aware datetime")
    if moment.tzinfo is UTC:  # nearly always, and every statement's moments pass here
        return moment
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise ValueError(
            f"{what} is {moment!r}, which names no time zone; give an aware datetime, such as "
            "datetime.now(timezone.utc)"
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{what} is {moment!r}, which lies outside of the years 1 to 9999 in UTC") from None


def round_up(moment: datetime, digits: int | None) -> datetime:
    """`moment` rounded up to `digits` decimal digits of a second (None: as it is), so that the column holds exactly
    what was written."""
    if digits is None or digits >= 6:
        return moment
    step = 10 ** (6 - digits)
    short = -moment.microsecond % step
    return moment + timedelta(microseconds=short)


def readable(decode: Callable[[Any], datetime | None], value: Any) -> datetime | None:
    """The decoded moment, None where it cannot be read: one odd row must not spoil a claim."""
    try:
        return decode(value)
    except (ValueError, TypeError, OverflowError):
        return None
