"""Values on their way to and from SQLite, by the declared column; sqlite3's own adapters are never asked.

SQLite holds moments as UTC text of one width, or as seconds since the epoch; any ISO 8601 form is read.
"""

import json
import math
import re
from collections.abc import Callable, Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, get_origin
from uuid import UUID

from sqlqueue.clock import UTC, utc
from sqlqueue.dialect import Converter
from sqlqueue.roles import MOMENTS, Role
from sqlqueue.spec import ColumnSpec

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SECOND = timedelta(seconds=1)

WIDTH = len("YYYY-MM-DD HH:MM:SS.ffffff")

_ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)? ?(?:[Zz]|([+-]\d\d)(?::?(\d\d))?)?",
    re.ASCII,
)


def kind_of(column: ColumnSpec) -> Any:
    """The declared type without its parameters: `dict` for `dict[str, str]`."""
    return get_origin(column.type) or column.type


def is_a(column: ColumnSpec, *kinds: type) -> bool:
    kind = kind_of(column)
    return isinstance(kind, type) and issubclass(kind, kinds)


def is_moment(column: ColumnSpec) -> bool:
    return column.role in MOMENTS or is_a(column, datetime)


def is_number(column: ColumnSpec) -> bool:
    """Of a moment column: whether it holds seconds since the epoch rather than text."""
    return is_a(column, int, float)


def encoder(column: ColumnSpec) -> Converter | None:
    """From a Python value (never None) to what sqlite3 binds; None where it is bound as it is."""
    if is_moment(column):
        if is_number(column):
            return moment_to_whole_seconds if is_a(column, int) else moment_to_seconds
        return moment_to_text
    if column.role is Role.HEADERS or is_a(column, dict, list):
        return to_json
    if is_a(column, int, float, str, bytes):
        return None
    return bindable


def now_encoder(column: ColumnSpec) -> Converter | None:
    """As `encoder`, for the *now* that moments are compared with: those of whole seconds are rounded up."""
    return moment_to_seconds_passed if is_moment(column) and is_a(column, int) else encoder(column)


def decoder(column: ColumnSpec) -> Converter | None:
    """From what sqlite3 returns (never None) to the declared type; None where it comes as it is."""
    if is_moment(column):
        return read_moment
    if column.role is Role.HEADERS:
        return from_json
    if column.role is Role.PAYLOAD and is_a(column, str):
        return None  # its codec reads text as well as the BLOB that other programs write
    for kind, convert in _DECODERS:
        if is_a(column, kind):
            declared: Callable[[Any], Any] = kind_of(column)
            if declared is kind or kind not in _PLAIN:
                return convert
            return lambda value: declared(convert(value))  # such as an enum of strings
    return None


def bindable(value: Any) -> Any:
    """A value whose column's type says nothing, by its own type; sqlite3 refuses what is left as it is."""
    if isinstance(value, datetime):
        return moment_to_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, dict | list):
        return to_json(value)
    return value


def moment_to_text(moment: datetime) -> str:
    """UTC text of one width, which orders as the moments do; a naive moment is a `ValueError`."""
    return utc(moment).isoformat(" ", "microseconds")[:WIDTH]


def moment_to_seconds(moment: Any) -> Any:
    """Seconds since the epoch as a float; a number is taken as seconds already."""
    if isinstance(moment, datetime):
        return (utc(moment) - EPOCH) / _SECOND
    return moment


def moment_to_whole_seconds(moment: Any) -> Any:
    """Whole seconds since the epoch, rounded up: a row is never due, nor a lease over, before its moment."""
    if isinstance(moment, datetime):
        return -((EPOCH - utc(moment)) // _SECOND)
    return math.ceil(moment)


def moment_to_seconds_passed(moment: Any) -> Any:
    """Whole seconds since the epoch that have passed: the *now* to compare rounded-up moments with."""
    if isinstance(moment, datetime):
        return (utc(moment) - EPOCH) // _SECOND
    return math.floor(moment)


def read_moment(value: Any) -> datetime:
    """A stored moment as an aware datetime in UTC.

    Text in any ISO 8601 form (without an offset it is UTC; digits past the microsecond are dropped), or a number
    of seconds since the epoch. `ValueError` or `TypeError` on anything else.
    """
    if isinstance(value, str):
        return _read_text(value)
    if isinstance(value, datetime):  # a caller's connection may convert by itself
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    if not isinstance(value, int | float):
        raise TypeError(f"{value!r} is no moment; it is neither text nor a number")
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
    day, time, second, fraction, hours, minutes = match.groups()  # Python 3.10 reads one form, with all of it
    clock = f"{time or '00:00'}:{second or '00'}.{(fraction or '')[:6]:0<6}"
    return datetime.fromisoformat(f"{day} {clock}{hours or '+00'}:{minutes or '00'}").astimezone(UTC)


def to_json(value: Any) -> Any:
    """JSON text; text is taken as JSON already."""
    if isinstance(value, str | bytes):
        return value
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def from_json(value: Any) -> Any:
    """What JSON text says; in a NUMERIC column a bare number comes as one."""
    return json.loads(value) if isinstance(value, str | bytes) else value


def _to_bool(value: Any) -> bool:
    if value in (0, 1):
        return bool(value)
    raise ValueError(f"{value!r} is neither 0 nor 1")


def _to_uuid(value: Any) -> UUID:
    return UUID(bytes=value) if isinstance(value, bytes) else UUID(str(value))


def uuid_spellings(value: UUID) -> tuple[str | bytes, ...]:
    """A UUID as we write it, and as other programs do: in capitals, without hyphens, as a BLOB."""
    text, digits = str(value), value.hex
    return (text, text.upper(), digits, digits.upper(), value.bytes)


def _to_bytes(value: Any) -> bytes:
    # Plain SQL writes text where a program would write a BLOB.
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytes):
        return value
    raise TypeError(f"{value!r} is neither a BLOB nor text")


def _to_decimal(value: Any) -> Decimal:
    try:
        return Decimal(str(value))
    except ArithmeticError:
        raise ValueError(f"{value!r} is no decimal number") from None


def _to_int(value: Any) -> int:
    if isinstance(value, int):
        return value
    number = int(_number(value))
    if isinstance(value, float) and number != value:
        raise ValueError(f"{value!r} is no whole number")
    return number


def _to_float(value: Any) -> float:
    return float(_number(value))


def _number(value: Any) -> Any:
    """What a column that takes numbers returns, and text, which one of TEXT affinity makes of them."""
    if isinstance(value, int | float | str):
        return value
    raise TypeError(f"{value!r} is no number")


def _to_str(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):  # as PostgreSQL reads another type where text is declared
        return str(value)
    raise TypeError(f"{value!r} is no text")


def _to_json_of(kind: type, name: str) -> Converter:
    def read(value: Any) -> Any:
        found = from_json(value)
        if not isinstance(found, kind):
            raise TypeError(f"{value!r} is no JSON {name}")
        return found

    return read


# bool before int, whose subclass it is.
_DECODERS: tuple[tuple[type, Converter], ...] = (
    (bool, _to_bool),
    (int, _to_int),
    (float, _to_float),
    (str, _to_str),
    (UUID, _to_uuid),
    (bytes, _to_bytes),
    (Decimal, _to_decimal),
    (date, lambda value: date.fromisoformat(value)),
    (dict, _to_json_of(dict, "object")),
    (list, _to_json_of(list, "array")),
)

#: Types whose subclasses are bound as they are, and made of what is read.
_PLAIN = (int, float, str, bytes)


def quoted_list(values: Iterable[Any]) -> str:
    """Values as SQLite's quote() writes them, in a JSON array."""
    return json.dumps(list(map(quoted, values)))


def quoted(value: Any) -> str:
    """A value that sqlite3 returned as SQLite's quote() writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, str):
        text = value.replace("'", "''")
        return f"'{text}'"
    return str(value)
