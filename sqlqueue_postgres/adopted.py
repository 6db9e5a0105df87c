"""The caller's own connection."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import attrs
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
        with self._as_one(True):
            if self.driver.pgconn.pipeline_status == PipelineStatus.OFF:
                return copy(self.driver, table, columns, rows, then)
            return self._insert_each(insert, columns, rows, then)

    def _insert_each(
        self, insert: Statement, columns: Sequence[ColumnSpec], rows: Iterable[Row], then: Sequence[Call]
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
