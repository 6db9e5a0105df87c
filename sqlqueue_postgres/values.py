"""Values both ways: a column's declared Python type decides its SQL type, what is bound and what is read.

psycopg's own types translate them, whatever adapters the program has registered for its own statements.
"""

import json
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from struct import Struct
from typing import Any, get_origin
from uuid import UUID

import attrs
import psycopg
from psycopg import postgres
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format
from psycopg.types import TypesRegistry
from psycopg.types.array import ListBinaryDumper
from psycopg.types.json import Jsonb
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import BytesBinaryDumper

from sqlqueue.dialect import ColumnFacts, Converter
from sqlqueue.roles import MOMENTS, Role
from sqlqueue.spec import ColumnSpec

JSON_TYPES = ("jsonb", "json")

TEXT_TYPES = ("text", "character varying", "character", "citext", "name")


@attrs.frozen
class Kind:
    """A Python type, the SQL type recommended for it, and those that hold it; none named: any does, read as text."""

    python: type
    sql: str
    held_by: tuple[str, ...] = ()


# A subclass stands before its base.
KINDS = (
    Kind(bool, "boolean", ("boolean",)),
    Kind(int, "bigint", ("bigint", "integer", "smallint")),
    Kind(float, "double precision", ("double precision", "real", "numeric")),
    Kind(Decimal, "numeric", ("numeric",)),
    Kind(str, "text"),
    Kind(bytes, "bytea", ("bytea",)),
    Kind(UUID, "uuid", ("uuid",)),
    Kind(datetime, "timestamptz", ("timestamp with time zone",)),
    Kind(date, "date", ("date",)),
    Kind(time, "time", ("time without time zone",)),
    Kind(timedelta, "interval", ("interval",)),
    Kind(dict, "jsonb", JSON_TYPES),
    Kind(list, "jsonb", JSON_TYPES),
)

#: What carries fractions of a second.
TIMESTAMPS = ("timestamp with time zone", "timestamp without time zone")


def kind_of(column: ColumnSpec) -> Kind | None:
    """The kind of the declared type, else of the role; None where neither says."""
    declared = column.role.fact.open_type if column.type is Any and column.role else column.type
    declared = get_origin(declared) or declared
    if not isinstance(declared, type):
        return None
    return next((kind for kind in KINDS if issubclass(declared, kind.python)), None)


def sql_type(column: ColumnSpec) -> str:
    kind = kind_of(column)
    return kind.sql if kind else "text"


def encoder(column: ColumnSpec) -> Converter | None:
    kind = kind_of(column)
    if kind is None:
        return None
    if kind.python in (dict, list):
        return Jsonb
    if column.role is Role.HEADERS:
        return json_text
    if column.type not in (Any, kind.python) and kind.python in PLAIN:
        return PLAIN[kind.python]  # an enum of strings, say
    return None


def json_text(value: Any) -> str:
    """Headers in a column of text; text is taken as JSON already."""
    return value if isinstance(value, str) else json.dumps(value)


#: From an object of a subclass, such as an enum's member, to the plain value that psycopg knows.
PLAIN: Mapping[type, Converter] = {str: str.__str__, int: int, float: float}


def decoder(column: ColumnSpec) -> Converter | None:
    kind = kind_of(column)
    if kind is None:
        return readable
    plain = DECODERS.get(kind.python)
    if isinstance(column.type, type) and column.type is not kind.python and kind.python in PLAIN:
        declared: Converter = column.type
        return declared
    return plain


def readable(value: Any) -> Any:
    """`value` as it is; a ValueError where it is one that Python cannot hold."""
    if isinstance(value, Unreadable):
        raise ValueError(value.reason)
    return value


def moment(value: Any) -> datetime:
    """An aware UTC datetime."""
    value = readable(value)
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise TypeError(f"{value!r} is no moment with a time zone")
    return value if value.tzinfo is timezone.utc else value.astimezone(timezone.utc)


def text(value: Any) -> str:
    """Text as it is; a database without an encoding (SQL_ASCII) hands out bytes."""
    return value if isinstance(value, str) else bytes(value).decode()


def mapping(value: Any) -> dict[str, Any]:
    if not isinstance(readable(value), dict):
        raise TypeError(f"{value!r} is no JSON object")
    return dict(value)


def sequence(value: Any) -> list[Any]:
    if not isinstance(readable(value), list):
        raise TypeError(f"{value!r} is no JSON array")
    return list(value)


DECODERS: Mapping[type, Converter] = {
    datetime: moment,
    date: readable,
    time: readable,
    timedelta: readable,
    str: text,
    float: float,
    dict: mapping,
    list: sequence,
}


def misfit(column: ColumnSpec, facts: ColumnFacts, name: str) -> str | None:
    """Why a column of the database cannot hold the declared one, and the mend. `name` is the quoted column."""
    kind = kind_of(column)
    declared = getattr(column.type, "__name__", str(column.type))
    if column.role and column.role.fact.starts_null and not facts.nullable:
        return (
            "it is NOT NULL, and the role leaves it empty while nothing is to be said; run "
            f"ALTER TABLE … ALTER COLUMN {name} DROP NOT NULL"
        )
    if column.role in MOMENTS and kind is not None and kind.python is not datetime:
        return (
            f"it is declared as {declared}, and on PostgreSQL moments are kept as timestamptz only; "
            "declare it as datetime"
        )
    if column.role is Role.ID and kind is None:
        return f"its type is left open, and it is {facts.type}; declare it as int, str, UUID or bytes"
    if kind is None:
        return None
    # Statements take many of these values as an array of their type, so that a cast from text will not do.
    listed = column.role is not None and column.role.fact.listed
    held_by = TEXT_TYPES if kind.python is str and listed else kind.held_by
    if not held_by or facts.type in held_by:
        return None
    return (
        f"it is {facts.type}, which cannot hold {declared}; declare it otherwise, or run "
        f"ALTER TABLE … ALTER COLUMN {name} TYPE {kind.sql}"
    )


_EPOCH = datetime(2000, 1, 1, tzinfo=timezone.utc)
_MICROSECONDS = Struct("!q")

#: Types with values that Python has no room for (`infinity`, the year 20000, 24:00) or that a parser may refuse.
_FALLIBLE = ("date", "time", "timetz", "timestamp", "interval", "json", "jsonb")


@attrs.frozen
class Unreadable:
    """A value that Python cannot hold. It stands in the row, so that the other rows of a claim are read."""

    reason: str


class MomentLoader(Loader):
    """A timestamptz as an aware UTC datetime; psycopg's own would convert it to the session's time zone."""

    format = Format.BINARY

    def load(self, data: Buffer) -> datetime | Unreadable:
        microseconds: int = _MICROSECONDS.unpack(data)[0]
        try:
            return _EPOCH + timedelta(microseconds=microseconds)
        except OverflowError:
            return Unreadable("a moment outside of the years 1 to 9999, such as infinity")


class HexDumper(Dumper):
    """Bytes for COPY. psycopg's own doubles the backslash where a session has standard_conforming_strings off, for
    quoted text; COPY would store two."""

    def dump(self, obj: Any) -> bytes:
        return b"\\x" + bytes(obj).hex().encode()


def _guarded(inner: type[Any]) -> type[Loader]:
    """`inner`, with `Unreadable` as its value where it fails."""

    class Guarded(Loader):
        format = Format.BINARY

        def __init__(self, oid: int, context: AdaptContext | None = None) -> None:
            super().__init__(oid, context)
            self._load = inner(oid, context).load

        def load(self, data: Buffer) -> Any:
            try:
                return self._load(data)
            except (psycopg.Error, ValueError, OverflowError, RecursionError) as error:
                return Unreadable(str(error))

    return Guarded


def _adapters() -> AdaptersMap:
    types = TypesRegistry()
    postgres.register_default_types(types)
    adapters = AdaptersMap(types=types)
    postgres.register_default_adapters(adapters)
    for name in _FALLIBLE:
        loader = adapters.get_loader(types[name].oid, Format.BINARY)
        assert loader is not None
        adapters.register_loader(name, _guarded(loader))
    adapters.register_loader("timestamptz", MomentLoader)
    # psycopg chooses smallint, integer or bigint by the value: each would be a prepared statement of its own.
    adapters.register_dumper(int, Int8BinaryDumper)
    # The last one registered is preferred: bytes as binary, but for COPY, which takes text.
    for kind in (bytes, bytearray, memoryview):
        adapters.register_dumper(kind, HexDumper)
        adapters.register_dumper(kind, BytesBinaryDumper)
    # Lists as binary, which needs no quoting of each element.
    adapters.register_dumper(list, ListBinaryDumper)
    return adapters


ADAPTERS = _adapters()
