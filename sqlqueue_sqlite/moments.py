"""Moments as SQLite holds them: UTC text of one width, or seconds since the epoch; any ISO 8601 form is read."""

import math
import re
from datetime import datetime, timedelta, timezone
from typing import Any

from sqlqueue.clock import UTC, utc

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_MICROSECOND = timedelta(microseconds=1)
_SECOND = timedelta(seconds=1)

WIDTH = len("YYYY-MM-DD HH:MM:SS.ffffff")

_ISO = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)"
    r"(?:[Tt ](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:[.,](?P<fraction>\d{1,9}))?)?)?"
    r" ?(?P<zone>[Zz]|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII,
)


def to_text(moment: datetime) -> str:
    """UTC text of one width, which orders as the moments do; a naive moment is a `ValueError`."""
    return utc(moment).isoformat(" ", "microseconds")[:WIDTH]


def to_seconds(moment: Any) -> Any:
    """Seconds since the epoch as a float; a number is taken as seconds already."""
    if isinstance(moment, datetime):
        return (utc(moment) - EPOCH) / _SECOND
    return moment


def to_whole_seconds(moment: Any) -> Any:
    """Whole seconds since the epoch, rounded up: a row is never due, nor a lease over, before its moment."""
    if isinstance(moment, datetime):
        return -((EPOCH - utc(moment)) // _SECOND)
    return math.ceil(moment)


def to_seconds_passed(moment: Any) -> Any:
    """Whole seconds since the epoch that have passed: the *now* to compare rounded-up moments with."""
    if isinstance(moment, datetime):
        return (utc(moment) - EPOCH) // _SECOND
    return math.floor(moment)


def read(value: Any) -> datetime:
    """A stored moment as an aware datetime in UTC.

    Text in any ISO 8601 form (without an offset it is UTC; digits past the microsecond are dropped), or a number
    of seconds since the epoch. `ValueError` or `TypeError` on anything else.
    """
    if isinstance(value, str):
        return _read_text(value)
    if isinstance(value, datetime):  # a caller's connection may convert by itself
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if isinstance(value, int | float):
        return _read_seconds(value)
    raise TypeError(f"{value!r} is no moment; it is neither text nor a number")


def _read_seconds(value: float) -> datetime:
    try:
        return EPOCH + timedelta(seconds=value)
    except OverflowError:
        raise ValueError(f"{value!r} seconds since the epoch are past every datetime") from None


def _read_text(text: str) -> datetime:
    if len(text) == WIDTH and text[10] == " ":  # our own spelling, or as good
        return datetime.fromisoformat(f"{text}+00:00")
    match = _ISO.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no ISO 8601 date and time")
    moment = datetime.fromisoformat(match["date"]).replace(
        hour=int(match["hour"] or 0),
        minute=int(match["minute"] or 0),
        second=int(match["second"] or 0),
        microsecond=int((match["fraction"] or "")[:6].ljust(6, "0")),
        tzinfo=_zone(match["zone"]),
    )
    return moment.astimezone(UTC)


def _zone(text: str | None) -> timezone:
    if text is None or text in "Zz":
        return UTC
    digits = text[1:].replace(":", "")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
    return timezone(-offset if text[0] == "-" else offset)
