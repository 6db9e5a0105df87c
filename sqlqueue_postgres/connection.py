"""How calls run on the three sorts of connection: of our own pool, lent by the user's pool, and the caller's own."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import attrs
import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from sqlqueue.dialect import Row
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Call, Statement, fill
from sqlqueue_postgres.adapters import Cursor, Driver, execute
from sqlqueue_postgres.fuse import MISFITS, Fused, fuse
from sqlqueue_postgres.names import quote, table_name
from sqlqueue_postgres.patience import GRACE, Limited
from sqlqueue_postgres.trouble import is_stale_plan

COPY = """
-- sqlqueue: copy in
COPY {table} ({columns}) FROM STDIN
"""

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
COMMIT = "COMMIT"

# Both for the transaction only, so that nothing is left behind on a connection that is lent.
LIMIT_TIME = "SELECT set_config('statement_timeout', $1, true)"
NEED_NOT_BE_DURABLE = "SELECT set_config('synchronous_commit', 'off', true)"

NO_LIMIT = "0"


def in_milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))


#: A statement and the values of its placeholders.
Step = tuple[str, Row]


@attrs.frozen
class OwnConnection:
    """A connection of our own pool: in autocommit mode, with our settings, so that one statement needs no prelude."""

    driver: Driver
    _seconds: float = attrs.field(alias="statement_timeout")

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        with Limited(self.driver, self._seconds + GRACE):
            return self._run(calls, durable)

    def _run(self, calls: Sequence[Call], durable: bool) -> list[list[Row]]:
        durable = durable or not any(call.statement.writes for call in calls)
        if len(calls) == 1 and durable:
            return [_execute_call(self.driver, calls[0])]
        if not calls:
            return []
        fused = fuse(tuple([call.statement for call in calls]), durable)
        if fused is not None and fused.serves:
            results = self._run_fused(fused, calls)
            if results is not None:
                return results
        before = [] if durable else [(NEED_NOT_BE_DURABLE, ())]
        return _together(self.driver, before, calls, [], self.driver.transaction)

    def _run_fused(self, fused: Fused, calls: Sequence[Call]) -> list[list[Row]] | None:
        try:
            rows = Cursor(self.driver).execute(fused.text, fused.bind(calls), binary=True).fetchall()
        except psycopg.Error as error:
            if is_stale_plan(error):
                self.driver.close()  # and with it its prepared statements
            if error.sqlstate not in MISFITS or self.driver.closed:
                raise
            # Nothing has run. Where a call is wrong by itself, it says so when it runs on its own.
            fused.serves = False
            return None
        return fused.split(rows, len(calls))

    def insert_many(
        self,
        insert: Statement,
        table: TableSpec,
        columns: Sequence[ColumnSpec],
        rows: Iterable[Row],
        *,
        then: Sequence[Call] = (),
    ) -> int:
        with self.driver.transaction():
            execute(self.driver, LIMIT_TIME, (NO_LIMIT,))  # it takes as long as the rows take to come
            return _copy(self.driver, table, columns, rows, then)


@attrs.frozen
class LentConnection:
    """A connection of the user's pool, in autocommit mode while it is lent: our transactions name all they need."""

    driver: Driver
    _seconds: float = attrs.field(alias="statement_timeout")

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        before: list[Step] = [(BEGIN, ()), (LIMIT_TIME, (in_milliseconds(self._seconds),))]
        if not durable and any(call.statement.writes for call in calls):
            before.append((NEED_NOT_BE_DURABLE, ()))
        try:
            with Limited(self.driver, self._seconds + GRACE):
                return _together(self.driver, before, calls, [(COMMIT, ())], nullcontext)
        finally:
            roll_back(self.driver)

    def insert_many(
        self,
        insert: Statement,
        table: TableSpec,
        columns: Sequence[ColumnSpec],
        rows: Iterable[Row],
        *,
        then: Sequence[Call] = (),
    ) -> int:
        try:
            execute(self.driver, BEGIN)
            execute(self.driver, LIMIT_TIME, (NO_LIMIT,))
            count = _copy(self.driver, table, columns, rows, then)
            execute(self.driver, COMMIT)
        finally:
            roll_back(self.driver)
        return count


@attrs.frozen
class AdoptedConnection:
    """The caller's connection: what runs here joins its transaction and is never committed by us."""

    driver: Driver

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        with self._as_one(len(calls) > 1):
            return [_execute_call(self.driver, call) for call in calls]

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
                return _copy(self.driver, table, columns, rows, then)
            return self._insert_each(insert, columns, rows, then)

    def _insert_each(
        self, insert: Statement, columns: Sequence[ColumnSpec], rows: Iterable[Row], then: Sequence[Call]
    ) -> int:
        """One statement a row: the protocol has no COPY within the caller's pipeline."""
        fields = [column.field for column in columns]
        count = 0
        for row in rows:
            values = insert.bind(dict(zip(fields, row, strict=True)))
            Cursor(self.driver).execute(insert.text.encode(), values, binary=True)
            count += 1
        for call in then if count else ():
            _execute_call(self.driver, call)
        return count

    def _as_one(self, several: bool) -> AbstractContextManager[Any]:
        """In autocommit mode, outside of a transaction, several statements need one that ends with them."""
        idle = self.driver.pgconn.transaction_status == TransactionStatus.IDLE
        return self.driver.transaction() if several and idle and self.driver.autocommit else nullcontext()


def _execute_call(driver: Driver, call: Call) -> list[Row]:
    statement = call.statement
    cursor = Cursor(driver).execute(statement.text.encode(), statement.bind(call.values), binary=True)
    return cursor.fetchall() if statement.width else []


def _together(
    driver: Driver,
    before: Sequence[Step],
    calls: Sequence[Call],
    after: Sequence[Step],
    otherwise: Callable[[], AbstractContextManager[Any]],
) -> list[list[Row]]:
    """All in one round trip, which is one transaction by itself; without pipelines (libpq 13) within `otherwise()`."""
    with ExitStack() as stack:
        piped = psycopg.Pipeline.is_supported()
        stack.enter_context(driver.pipeline() if piped else otherwise())
        for text, values in before:
            Cursor(driver).execute(text.encode(), values, binary=True)
        cursors = [
            Cursor(driver).execute(call.statement.text.encode(), call.statement.bind(call.values), binary=True)
            for call in calls
        ]
        for text, values in after:
            Cursor(driver).execute(text.encode(), values, binary=True)
    return [cursor.fetchall() if call.statement.width else [] for cursor, call in zip(cursors, calls, strict=True)]


def _copy(
    driver: Driver, table: TableSpec, columns: Sequence[ColumnSpec], rows: Iterable[Row], then: Sequence[Call]
) -> int:
    names = ", ".join(quote(column.name) for column in columns)
    cursor = Cursor(driver)
    with cursor.copy(fill(COPY, {"table": table_name(table), "columns": names}).encode()) as copy:
        for row in rows:
            copy.write_row(row)
    for call in then if cursor.rowcount else ():
        _execute_call(driver, call)
    return cursor.rowcount


def roll_back(driver: Driver) -> None:
    """End the transaction that a failure left open, if any; a connection that cannot is closed."""
    if driver.closed or driver.pgconn.transaction_status == TransactionStatus.IDLE:
        return
    try:
        driver.rollback()
    except psycopg.Error:
        driver.close()
