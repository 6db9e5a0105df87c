"""Values on their way to and from SQLite, by the declared column; sqlite3's own adapters are never asked."""

import json
from collections.abc import Callable, Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, get_origin
from uuid import UUID

from sqlqueue.dialect import Converter
from sqlqueue.roles import MOMENTS, Role
from sqlqueue.spec import ColumnSpec
from sqlqueue_sqlite import moments


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
            return moments.to_whole_seconds if is_a(column, int) else moments.to_seconds
        return moments.to_text
    if column.role is Role.HEADERS or is_a(column, dict, list):
        return to_json
    if is_a(column, int, float, str, bytes):
        return None
    return bindable


def decoder(column: ColumnSpec) -> Converter | None:
    """From what sqlite3 returns (never None) to the declared type; None where it comes as it is."""
    if is_moment(column):
        return moments.read
    if column.role is Role.HEADERS:
        return from_json
    if column.role is Role.PAYLOAD and is_a(column, str):
        return None  # its codec reads text as well as the BLOB that other programs write
    for kind, convert in _DECODERS:
        if is_a(column, kind):
            return convert if kind_of(column) is kind or kind not in _PLAIN else _declared(kind_of(column), convert)
    return None


def _declared(kind: Callable[[Any], Any], plain: Converter) -> Converter:
    """To a subclass of a plain type, such as an enum of strings."""
    return lambda value: kind(plain(value))


def bindable(value: Any) -> Any:
    """A value whose column's type says nothing, by its own type; sqlite3 refuses what is left as it is."""
    if isinstance(value, datetime):
        return moments.to_text(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, dict | list):
        return to_json(value)
    return value


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


def _to_dict(value: Any) -> dict[str, Any]:
    found = from_json(value)
    if not isinstance(found, dict):
        raise TypeError(f"{value!r} is no JSON object")
    return found


def _to_list(value: Any) -> list[Any]:
    found = from_json(value)
    if not isinstance(found, list):
        raise TypeError(f"{value!r} is no JSON array")
    return found


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
    (dict, _to_dict),
    (list, _to_list),
)

#: Types whose subclasses are bound as they are, and made of what is read.
_PLAIN = (int, float, str, bytes)


def quoted_list(values: Iterable[Any]) -> str:
    """Values as SQLite's quote() writes them, in a JSON array."""
    return json.dumps([quoted(value) for value in values])


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
