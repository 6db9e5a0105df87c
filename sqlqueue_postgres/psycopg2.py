"""A caller's connection of psycopg2, which sends text alone: what is bound elsewhere becomes part of the statement."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from uuid import UUID

import attrs
from psycopg2 import BINARY, extensions

from sqlqueue.dialect import Row
from sqlqueue.errors import DeclarationError
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Call, Statement
from sqlqueue_postgres.literals import spell

# A round trip each: psycopg2 has no pipelines, and its COPY fails where gevent waits for it.
ROWS_SENT_TOGETHER = 500

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
            for first in range(0, len(texts), ROWS_SENT_TOGETHER):
                cursor.execute(b";\n".join(texts[first : first + ROWS_SENT_TOGETHER]))
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
