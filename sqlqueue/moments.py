"""Moments as columns hold them: rounded to what fits, read with care."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any


def round_up(moment: datetime, digits: int | None) -> datetime:
    """`moment` rounded up to `digits` decimal digits of a second (None: as it is), so that what the column holds
    is what was written."""
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
