"""Values on their way to and from SQLite, by the declared column; sqlite3's own adapters are never asked."""

import json
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal
from typing import Any, get_origin
from uuid import UUID

from sqlqueue.column import Role
from sqlqueue.dialect import Converter
from sqlqueue.spec import ColumnSpec
from sqlqueue_sqlite import moments

_MOMENTS = (Role.RETRY_AFTER, Role.PROCESSED_AT, Role.LEASE)


def kind_of(column: ColumnSpec) -> Any:
    """The declared type without its parameters: `dict` for `dict[str, str]`."""
    return get_origin(column.type) or column.type


def is_a(column: ColumnSpec, *kinds: type) -> bool:
    kind = kind_of(column)
    return isinstance(kind, type) and issubclass(kind, kinds)


def is_moment(column: ColumnSpec) -> bool:
    return column.role in _MOMENTS or is_a(column, datetime)


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
    for kind, convert in _DECODERS:
        if is_a(column, kind):
            return convert
    return None


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


# bool before int, whose subclass it is; int, float and str come as they are.
_DECODERS: tuple[tuple[type, Converter], ...] = (
    (bool, _to_bool),
    (UUID, _to_uuid),
    (bytes, _to_bytes),
    (Decimal, _to_decimal),
    (date, lambda value: date.fromisoformat(value)),
    (dict, from_json),
    (list, from_json),
)


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
