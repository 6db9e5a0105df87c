"""The caller's own connection, whose statements run by a cursor of psycopg's, as do those that are rare."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import attrs
import psycopg
from psycopg.adapt import AdaptersMap, PyFormat, Transformer
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from sqlqueue.dialect import Row
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Call, Statement, fill
from sqlqueue_postgres.ddl import quote, table_name
from sqlqueue_postgres.loan import Driver
from sqlqueue_postgres.values import ADAPTERS

COPY = """
-- sqlqueue: copy in
COPY {table} ({columns}) FROM STDIN
"""


class Cursor(psycopg.RawCursor[Row]):
    """A cursor that speaks `$1` and binary, and knows only our adapters."""

    def __init__(self, connection: Driver) -> None:
        super().__init__(connection, row_factory=tuple_row)

    @property
    def adapters(self) -> AdaptersMap:
        return ADAPTERS


def execute(driver: Driver, text: str, values: Sequence[Any] = ()) -> list[Row]:
    """Run one statement, off the hot path; its rows, none where it returns none. It leaves nothing prepared."""
    cursor = Cursor(driver).execute(text.encode(), values, prepare=False, binary=True)
    return cursor.fetchall() if cursor.description else []


def copy(driver: Driver, table: TableSpec, columns: Sequence[ColumnSpec], rows: Iterable[Row]) -> int:
    names = ", ".join(quote(column.name) for column in columns)
    cursor = Cursor(driver)
    with cursor.copy(fill(COPY, {"table": table_name(table), "columns": names}).encode()) as copy:
        for row in rows:
            copy.write_row(row)
    return cursor.rowcount


@attrs.frozen
class AdoptedConnection:
    """The caller's connection: what runs here joins its transaction and is never committed by us."""

    driver: Driver

    def close(self) -> None:
        """Nothing: the connection is the caller's."""

    @property
    def closed(self) -> bool:
        return self.driver.closed

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        with self._as_one(len(calls) > 1):
            return [self._execute(call) for call in calls]

    def insert_many(
        self,
        insert: Statement,
        table: TableSpec,
        columns: Sequence[ColumnSpec],
        rows: Iterable[Row],
        *,
        then: Sequence[Call] = (),
    ) -> int:
        made = self._made(rows)
        with self._as_one(True):
            if self.driver.pgconn.pipeline_status == PipelineStatus.OFF:
                count = copy(self.driver, table, columns, made)
            else:
                count = self._insert_each(insert, columns, made)
            for call in then if count else ():
                self._execute(call)
        return count

    def _execute(self, call: Call) -> list[Row]:
        cursor = Cursor(self.driver).execute(call.statement.sql, call.statement.bind(call.values), binary=True)
        return cursor.fetchall() if call.statement.width else []

    def _made(self, rows: Iterable[Row]) -> Sequence[Row]:
        """All rows, before the first statement: who makes them may use this connection himself, which waits for ever
        while a COPY is open, and a value that cannot be sent would end the caller's transaction with the COPY."""
        made = list(rows)
        transformer = Transformer(Cursor(self.driver))
        for row in made:
            transformer.dump_sequence(row, [PyFormat.TEXT] * len(row))
        return made

    def _insert_each(self, insert: Statement, columns: Sequence[ColumnSpec], rows: Sequence[Row]) -> int:
        """One statement a row: the protocol has no COPY within the caller's pipeline."""
        fields = [column.field for column in columns]
        for row in rows:
            values = insert.bind(dict(zip(fields, row, strict=True)))
            Cursor(self.driver).execute(insert.sql, values, binary=True)
        return len(rows)

    def _as_one(self, several: bool) -> AbstractContextManager[Any]:
        """In autocommit mode, outside of a transaction, several statements need one that ends with them."""
        idle = self.driver.pgconn.transaction_status == TransactionStatus.IDLE
        return self.driver.transaction() if several and idle and self.driver.autocommit else nullcontext()
