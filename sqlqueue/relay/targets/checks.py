"""What a publisher's settings have to be; a mistake raises where the publisher is made."""

import math
from collections.abc import Callable
from typing import Any

import attrs

from sqlqueue.errors import DeclarationError


def positive(publisher: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
    """Seconds: a number above 0, not infinite."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (value > 0 and math.isfinite(value)):
        raise DeclarationError(f"{type(publisher).__name__}({attribute.name}={value!r}): give seconds above 0")


def whole(least: int) -> Callable[[object, "attrs.Attribute[Any]", object], None]:
    """A whole number that is at least so great."""

    def check(publisher: object, attribute: "attrs.Attribute[Any]", value: object) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise DeclarationError(
                f"{type(publisher).__name__}({attribute.name}={value!r}): give a whole number from {least}"
            )

    return check
