"""How our cursors translate values, whatever adapters the program has registered for its own."""

from datetime import datetime, timedelta, timezone
from struct import Struct
from typing import Any

import attrs
import psycopg
from psycopg import postgres
from psycopg.abc import AdaptContext, Buffer
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format
from psycopg.rows import tuple_row
from psycopg.types import TypesRegistry
from psycopg.types.array import ListBinaryDumper
from psycopg.types.numeric import Int8BinaryDumper
from psycopg.types.string import BytesBinaryDumper

Driver = psycopg.Connection[Any]
Row = tuple[Any, ...]

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


class Cursor(psycopg.RawCursor[Row]):
    """A cursor that speaks `$1` and binary, and knows only our adapters."""

    def __init__(self, connection: Driver) -> None:
        super().__init__(connection, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS


def execute(driver: Driver, text: str, values: Row = ()) -> list[Row]:
    """Run one statement; its rows, none where it returns none."""
    cursor = Cursor(driver).execute(text.encode(), values, binary=True)
    return cursor.fetchall() if cursor.description else []
