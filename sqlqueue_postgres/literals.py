"""A statement with its values written into it, for psycopg2.

The program's own adapters do not reach them: each value is written by its Python type, with the SQL type that psycopg 3
would bind it as.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb
from psycopg2 import extensions

from sqlqueue.sql import Statement, fill

# As in `sqlqueue.sql`, what may hold a placeholder's sign without a value is stepped over first.
_NUMBERED = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\$(\d+)", re.DOTALL)

TYPED = "'{text}'::{type}"

# Without a backslash, whose meaning is a setting of the session.
BYTES = "decode('{text}', 'hex')"


def spell(statement: Statement, values: Mapping[str, Any], driver: Any) -> bytes:
    """The statement as `driver`, a psycopg2 connection, can send it, in its client encoding."""
    encoding = extensions.encodings[driver.encoding]
    written = [literal(value, driver) for value in statement.bind(values)]
    parts = _parts(statement.text)
    return b"".join(part.encode(encoding) if isinstance(part, str) else written[part] for part in parts)


@lru_cache(maxsize=1024)
def _parts(text: str) -> tuple[str | int, ...]:
    """What stands between the placeholders, and the index of the value for each of them."""
    parts: list[str | int] = []
    begin = 0
    for match in _NUMBERED.finditer(text):
        if match[1] is not None:
            parts += (text[begin : match.start()], int(match[1]) - 1)
            begin = match.end()
    return (*parts, text[begin:])


def literal(value: Any, driver: Any) -> bytes:
    """One value as SQL; a list as an array, whose type the statement says."""
    if value is None:
        return b"NULL"
    if isinstance(value, list):
        return b"ARRAY[" + b", ".join(literal(element, driver) for element in value) + b"]"
    if isinstance(value, Jsonb):
        return _quoted(extensions.QuotedString(json.dumps(value.obj)), driver)
    if isinstance(value, str):
        return _quoted(extensions.QuotedString(value), driver)
    for kind, write in WRITERS:
        if isinstance(value, kind):
            return write(value).encode()
    return _quoted(extensions.adapt(value), driver)


def _quoted(adapted: Any, driver: Any) -> bytes:
    # The driver quotes what is encoded already: in some encodings a sign that needs no quotes becomes one that does.
    if hasattr(adapted, "prepare"):
        adapted.prepare(driver)
    return bytes(adapted.getquoted())


def _as(type: str, text: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: fill(TYPED, {"text": text(value), "type": type})


def _datetime(value: datetime) -> str:
    if value.tzinfo is None:
        return fill(TYPED, {"text": value.isoformat(), "type": "timestamp"})
    return fill(TYPED, {"text": value.astimezone(timezone.utc).isoformat(), "type": "timestamptz"})


def _time(value: time) -> str:
    return fill(TYPED, {"text": value.isoformat(), "type": "time" if value.tzinfo is None else "timetz"})


def _interval(value: timedelta) -> str:
    return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"


def _hex(value: Any) -> str:
    return fill(BYTES, {"text": bytes(value).hex()})


# A subclass stands before its base.
WRITERS: tuple[tuple[type, Callable[[Any], str]], ...] = (
    (bool, _as("boolean", str)),
    (int, _as("bigint", int.__repr__)),
    (float, _as("double precision", float.__repr__)),
    (Decimal, _as("numeric", str)),
    (UUID, _as("uuid", str)),
    (datetime, _datetime),
    (date, _as("date", date.isoformat)),
    (time, _time),
    (timedelta, _as("interval", _interval)),
    (bytes, _hex),
    (bytearray, _hex),
    (memoryview, _hex),
)
