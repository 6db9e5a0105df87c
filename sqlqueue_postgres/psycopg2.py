"""A caller's connection of psycopg2, which sends text alone: what is bound elsewhere becomes part of the statement.

The program's own adapters do not reach the values: each is written by its Python type, with the SQL type that psycopg 3
would bind it as.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

import attrs
from psycopg.types.json import Jsonb
from psycopg2 import BINARY, extensions

from sqlqueue.dialect import Row
from sqlqueue.errors import DeclarationError
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Call, Statement, fill

# A round trip each: psycopg2 has no pipelines, and its COPY fails where gevent waits for it.
ROWS_IN_ONE_STATEMENT = 500

BYTEA, UUID_TYPE, TIMESTAMPTZ = 17, 2950, 1184


def _bytes(value: str | None, cursor: Any) -> bytes | None:
    return None if value is None else bytes(BINARY(value, cursor))


def _uuid(value: str | None, cursor: Any) -> UUID | None:
    return None if value is None else UUID(value)


# How we read, whatever the program has registered for its own.
READERS = (
    extensions.new_type((BYTEA,), "SQLQUEUE_BYTES", _bytes),
    extensions.new_type((UUID_TYPE,), "SQLQUEUE_UUID", _uuid),
    extensions.new_type((TIMESTAMPTZ,), "SQLQUEUE_MOMENT", extensions.PYDATETIMETZ),
    extensions.INTEGER,
    extensions.LONGINTEGER,
    extensions.UNICODE,
)


def adopt(driver: Any) -> "Psycopg2Connection":
    if driver.async_:
        raise DeclarationError(
            "a psycopg2 connection made with async_ returns before its statement has run; sqlqueue takes one that waits"
        )
    return Psycopg2Connection(driver)


@attrs.frozen
class Psycopg2Connection:
    """The caller's connection: what runs here joins its transaction and is never committed by us."""

    driver: Any

    def close(self) -> None:
        """Nothing: the connection is the caller's."""

    @property
    def closed(self) -> bool:
        return bool(self.driver.closed)

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        with self._cursor(several=len(calls) > 1) as cursor:
            return [self._execute(cursor, call) for call in calls]

    def insert_many(
        self,
        insert: Statement,
        table: TableSpec,
        columns: Sequence[ColumnSpec],
        rows: Iterable[Row],
        *,
        then: Sequence[Call] = (),
    ) -> int:
        fields = [column.field for column in columns]
        # All at once, so that one that cannot be encoded leaves none behind.
        texts = [spell(insert, dict(zip(fields, row, strict=True)), self.driver) for row in rows]
        with self._cursor(several=True) as cursor:
            for first in range(0, len(texts), ROWS_IN_ONE_STATEMENT):
                cursor.execute(b";\n".join(texts[first : first + ROWS_IN_ONE_STATEMENT]))
            for call in then if texts else ():
                self._execute(cursor, call)
        return len(texts)

    def _execute(self, cursor: Any, call: Call) -> list[Row]:
        cursor.execute(spell(call.statement, call.values, self.driver))
        return list(cursor.fetchall()) if call.statement.width else []

    @contextmanager
    def _cursor(self, *, several: bool) -> Iterator[Any]:
        """A cursor of plain rows. In autocommit mode, outside of a transaction, several statements get one of ours."""
        idle = self.driver.info.transaction_status == extensions.TRANSACTION_STATUS_IDLE
        with closing(self.driver.cursor(cursor_factory=extensions.cursor)) as cursor:
            for reader in READERS:
                extensions.register_type(reader, cursor)
            if several and idle and self.driver.autocommit:
                with self._transaction(cursor):
                    yield cursor
            else:
                yield cursor

    @contextmanager
    def _transaction(self, cursor: Any) -> Iterator[None]:
        cursor.execute("BEGIN")
        done = False
        try:
            yield
            done = True
        finally:
            if not self.driver.closed:
                cursor.execute("COMMIT" if done else "ROLLBACK")


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
