"""How calls run on the three sorts of connection: of our own pool, lent by the user's pool, and the caller's own."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import attrs
import psycopg
from psycopg.pq import PipelineStatus, TransactionStatus

from sqlqueue.connection import AfterCommit
from sqlqueue.dialect import Row
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Begin, Call, Commit, Statement, Step, fill
from sqlqueue_postgres.adapters import Cursor, Driver, execute
from sqlqueue_postgres.fuse import MISFITS, Fused, fuse
from sqlqueue_postgres.names import quote, table_name
from sqlqueue_postgres.patience import GRACE, Limited
from sqlqueue_postgres.pipeline import pipelined
from sqlqueue_postgres.sessions import explain
from sqlqueue_postgres.trouble import is_stale_plan
from sqlqueue_postgres.wire import Said, Wire

COPY = """
-- sqlqueue: copy in
COPY {table} ({columns}) FROM STDIN
"""

BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
BEGINS = {
    "READ COMMITTED": BEGIN,
    "REPEATABLE READ": "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "SERIALIZABLE": "BEGIN ISOLATION LEVEL SERIALIZABLE",
}
COMMIT = "COMMIT"
COMMIT_AND_CHAIN = "COMMIT AND CHAIN"
ROLLBACK = b"ROLLBACK"

# Both for the transaction only, so that nothing is left behind on a connection that is lent.
LIMIT_TIME = "SELECT set_config('statement_timeout', $1, true)"
NEED_NOT_BE_DURABLE = "SELECT set_config('synchronous_commit', 'off', true)"

NO_LIMIT = "0"


def in_milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))


#: A statement and the values of its placeholders.
Words = tuple[str, Row]


@attrs.frozen
class OwnConnection:
    """A connection of our own pool: in autocommit mode, with our settings, so that one statement needs no prelude."""

    driver: Driver
    _wire: Wire
    _seconds: float = attrs.field(alias="statement_timeout")

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        if not calls:
            return []
        durable = durable or not any(call.statement.writes for call in calls)
        fused = fuse(tuple([call.statement for call in calls]), durable) if len(calls) > 1 or not durable else None
        if fused is not None and fused.serves:
            results = self._run_fused(fused, calls)
            if results is not None:
                return results
        before = [] if durable else [(NEED_NOT_BE_DURABLE.encode(), ())]
        rows, error = self._say([*before, *[_said(call) for call in calls]])
        if error is not None:
            raise error
        return [found or [] for found in rows[len(before) :]]

    def _run_fused(self, fused: Fused, calls: Sequence[Call]) -> list[list[Row]] | None:
        (rows,), error = self._say([(fused.text, fused.bind(calls))])
        if error is None:
            return fused.split(rows or [], len(calls))
        if error.sqlstate not in MISFITS or self.driver.closed:
            raise error
        # Nothing has run. Where a call is wrong by itself, it says so when it runs on its own.
        fused.serves = False
        return None

    def send(self, steps: Sequence[Step]) -> list[list[Row]]:
        rows, error = self._say([_said_step(step) for step in steps])
        results = [found or [] for step, found in zip(steps, rows, strict=True) if isinstance(step, Call)]
        if error is None:
            return results
        if any(isinstance(step, Commit) and found is not None for step, found in zip(steps, rows, strict=True)):
            raise AfterCommit(results) from error
        raise error

    def _say(self, said: Sequence[Said]) -> tuple[list[list[Row] | None], psycopg.Error | None]:
        with Limited(self.driver, self._seconds + GRACE):
            rows, error = self._wire.say(said)
        if error is not None and is_stale_plan(error):
            self.driver.close()  # and with it its prepared statements
        return rows, error

    def roll_back(self) -> None:
        if not self.driver.closed and self.driver.pgconn.transaction_status != TransactionStatus.IDLE:
            self._say([(ROLLBACK, ())])

    def close(self) -> None:
        self.driver.close()

    @property
    def closed(self) -> bool:
        return self.driver.closed

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
        before: list[Words] = [(BEGIN, ()), (LIMIT_TIME, (in_milliseconds(self._seconds),))]
        if not durable and any(call.statement.writes for call in calls):
            before.append((NEED_NOT_BE_DURABLE, ()))
        try:
            with Limited(self.driver, self._seconds + GRACE):
                return _together(self.driver, before, calls, [(COMMIT, ())], nullcontext)
        except psycopg.Error as error:
            explain(error)
            raise
        finally:
            roll_back(self.driver)

    def send(self, steps: Sequence[Step]) -> list[list[Row]]:
        limit = (LIMIT_TIME, (in_milliseconds(self._seconds),))
        with Limited(self.driver, self._seconds + GRACE):
            return _sent(self.driver, steps, (limit,), ((BEGIN, ()), limit))

    def roll_back(self) -> None:
        roll_back(self.driver)

    def close(self) -> None:
        self.driver.close()

    @property
    def closed(self) -> bool:
        return self.driver.closed

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

    def close(self) -> None:
        """Nothing: the connection is the caller's."""

    @property
    def closed(self) -> bool:
        return self.driver.closed

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
    cursor = _start(driver, call)
    return cursor.fetchall() if call.statement.width else []


def _said(call: Call) -> Said:
    return call.statement.text.encode(), call.statement.bind(call.values)


def _said_step(step: Step) -> Said:
    if isinstance(step, Call):
        return _said(step)
    return _words(step).encode(), ()


def _words(step: Begin | Commit) -> str:
    if isinstance(step, Begin):
        return BEGINS[step.isolation]
    return COMMIT_AND_CHAIN if step.chain else COMMIT


def _together(
    driver: Driver,
    before: Sequence[Words],
    calls: Sequence[Call],
    after: Sequence[Words],
    otherwise: Callable[[], AbstractContextManager[Any]],
) -> list[list[Row]]:
    """All in one round trip, which is one transaction by itself; without pipelines (libpq 13) within `otherwise()`."""
    with ExitStack() as stack:
        piped = psycopg.Pipeline.is_supported()
        stack.enter_context(pipelined(driver) if piped else otherwise())
        _say(driver, before)
        cursors = [_start(driver, call) for call in calls]
        _say(driver, after)
    return [cursor.fetchall() if call.statement.width else [] for cursor, call in zip(cursors, calls, strict=True)]


def _sent(driver: Driver, steps: Sequence[Step], within: Sequence[Words], alone: Sequence[Words]) -> list[list[Row]]:
    """The steps in one round trip, without pipelines (libpq 13) in one each. A transaction that begins here begins with
    `within`; where `alone` says how, calls outside of a transaction get one together."""
    calls: list[tuple[Call, Cursor]] = []
    commits: list[Cursor] = []
    try:
        with pipelined(driver) if psycopg.Pipeline.is_supported() else nullcontext():
            _start_all(driver, _framed(driver, steps, alone), within, calls, commits)
    except psycopg.Error as error:
        explain(error)
        if any(cursor.statusmessage for cursor in commits):
            raise AfterCommit([_fetched(call, cursor) for call, cursor in calls]) from error
        raise
    return [_fetched(call, cursor) for call, cursor in calls]


def _framed(driver: Driver, steps: Sequence[Step], alone: Sequence[Words]) -> Iterator[Step | Sequence[Words]]:
    """The steps, with a transaction around calls that have none, where they need one."""
    held = driver.pgconn.transaction_status != TransactionStatus.IDLE
    framing = False
    for step in steps:
        if isinstance(step, Call) and alone and not held and not framing:
            framing = True
            yield alone
        elif framing and not isinstance(step, Call):
            framing = False
            yield ((COMMIT, ()),)
        held = held if isinstance(step, Call) else isinstance(step, Begin) or step.chain
        yield step
    if framing:
        yield ((COMMIT, ()),)


def _start_all(
    driver: Driver,
    steps: Iterable[Step | Sequence[Words]],
    within: Sequence[Words],
    calls: list[tuple[Call, Cursor]],
    commits: list[Cursor],
) -> None:
    for step in steps:
        if isinstance(step, Call):
            calls.append((step, _start(driver, step)))
        elif isinstance(step, Commit):
            commits.append(Cursor(driver).execute(_words(step).encode(), (), binary=True))
            _say(driver, within if step.chain else ())
        elif isinstance(step, Begin):
            _say(driver, [(_words(step), ()), *within])
        else:
            _say(driver, step)


def _fetched(call: Call, cursor: Cursor) -> list[Row]:
    return cursor.fetchall() if call.statement.width and cursor.description else []


def _say(driver: Driver, words: Sequence[Words]) -> None:
    for text, values in words:
        Cursor(driver).execute(text.encode(), values, binary=True)


def _start(driver: Driver, call: Call) -> Cursor:
    return Cursor(driver).execute(call.statement.text.encode(), call.statement.bind(call.values), binary=True)


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
