"""The caller's own connection."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import attrs
from psycopg.adapt import PyFormat, Transformer
from psycopg.pq import PipelineStatus, TransactionStatus

from sqlqueue.dialect import Row
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Call, Statement
from sqlqueue_postgres.adapters import Cursor, Driver
from sqlqueue_postgres.connection import copy, execute_call


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
            return [execute_call(self.driver, call) for call in calls]

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
                return copy(self.driver, table, columns, made, then)
            return self._insert_each(insert, columns, made, then)

    def _made(self, rows: Iterable[Row]) -> Sequence[Row]:
        """All rows, before the first statement: who makes them may use this connection himself, which waits for ever
        while a COPY is open, and a value that cannot be sent would end the caller's transaction with the COPY."""
        made = list(rows)
        transformer = Transformer(Cursor(self.driver))
        for row in made:
            transformer.dump_sequence(row, [PyFormat.TEXT] * len(row))
        return made

    def _insert_each(
        self, insert: Statement, columns: Sequence[ColumnSpec], rows: Sequence[Row], then: Sequence[Call]
    ) -> int:
        """One statement a row: the protocol has no COPY within the caller's pipeline."""
        fields = [column.field for column in columns]
        count = 0
        for row in rows:
            values = insert.bind(dict(zip(fields, row, strict=True)))
            Cursor(self.driver).execute(insert.sql, values, binary=True)
            count += 1
        for call in then if count else ():
            execute_call(self.driver, call)
        return count

    def _as_one(self, several: bool) -> AbstractContextManager[Any]:
        """In autocommit mode, outside of a transaction, several statements need one that ends with them."""
        idle = self.driver.pgconn.transaction_status == TransactionStatus.IDLE
        return self.driver.transaction() if several and idle and self.driver.autocommit else nullcontext()
