"""How calls run on a psycopg connection; what those lent by the user's pool and the caller's own have in common."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus

from sqlqueue.connection import AfterCommit
from sqlqueue.dialect import Row
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Begin, Call, Commit, Rollback, Savepoint, Step, fill
from sqlqueue_postgres.adapters import Cursor, Driver
from sqlqueue_postgres.names import quote, table_name
from sqlqueue_postgres.pipeline import pipelined
from sqlqueue_postgres.sessions import explain

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
ROLLBACK = "ROLLBACK"
COMMIT = "COMMIT"
COMMIT_AND_CHAIN = "COMMIT AND CHAIN"

# Both for the transaction only, so that nothing is left behind on a connection that is lent.
LIMIT_TIME = "SELECT set_config('statement_timeout', $1, true)"
NEED_NOT_BE_DURABLE = "SELECT set_config('synchronous_commit', 'off', true)"

NO_LIMIT = "0"


def in_milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))


#: A statement and the values of its placeholders.
Words = tuple[str, Row]


def execute_call(driver: Driver, call: Call) -> list[Row]:
    cursor = _start(driver, call)
    return cursor.fetchall() if call.statement.width else []


def words_of(step: Begin | Commit | Rollback | Savepoint) -> str:
    if isinstance(step, Begin):
        return BEGINS[step.isolation]
    if isinstance(step, Savepoint):
        return step.value
    if isinstance(step, Rollback):
        return ROLLBACK
    return COMMIT_AND_CHAIN if step.chain else COMMIT


def together(
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
        say(driver, before)
        cursors = [_start(driver, call) for call in calls]
        say(driver, after)
    return [cursor.fetchall() if call.statement.width else [] for cursor, call in zip(cursors, calls, strict=True)]


def sent(
    driver: Driver,
    steps: Sequence[Step],
    within: Sequence[Words],
    alone: Sequence[Words],
    behind: Sequence[Words],
) -> list[list[Row]]:
    """The steps in one round trip, without pipelines (libpq 13) in one each. A transaction that begins here begins with
    `within`; where `alone` says how, calls outside of a transaction get one together. `behind` follows the end of a
    handler's part of a transaction."""
    calls: list[tuple[Call, Cursor]] = []
    commits: list[Cursor] = []
    try:
        with pipelined(driver) if psycopg.Pipeline.is_supported() else nullcontext():
            _start_all(driver, _framed(driver, steps, alone, behind), within, calls, commits)
    except psycopg.Error as error:
        explain(error)
        if any(cursor.statusmessage for cursor in commits):
            raise AfterCommit([_fetched(call, cursor) for call, cursor in calls]) from error
        raise
    return [_fetched(call, cursor) for call, cursor in calls]


def _framed(
    driver: Driver, steps: Sequence[Step], alone: Sequence[Words], behind: Sequence[Words]
) -> Iterator[Step | Sequence[Words]]:
    """The steps, with a transaction around calls that have none, where they need one, and what follows a handler."""
    held = driver.pgconn.transaction_status != TransactionStatus.IDLE
    framing = False
    for step in steps:
        if isinstance(step, Call) and alone and not held and not framing:
            framing = True
            yield alone
        elif framing and not isinstance(step, Call):
            framing = False
            yield ((COMMIT, ()),)
        if isinstance(step, Begin | Commit | Rollback):
            held = isinstance(step, Begin) or (isinstance(step, Commit) and step.chain)
        yield step
        if isinstance(step, Savepoint | Rollback):
            yield behind
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
            commits.append(Cursor(driver).execute(words_of(step).encode(), (), binary=True))
            say(driver, within if step.chain else ())
        elif isinstance(step, Begin):
            say(driver, [(words_of(step), ()), *within])
        elif isinstance(step, Savepoint | Rollback):
            say(driver, [(words_of(step), ())])
        else:
            say(driver, step)


def _fetched(call: Call, cursor: Cursor) -> list[Row]:
    return cursor.fetchall() if call.statement.width and cursor.description else []


def say(driver: Driver, words: Sequence[Words]) -> None:
    for text, values in words:
        Cursor(driver).execute(text.encode(), values, binary=True)


def _start(driver: Driver, call: Call) -> Cursor:
    return Cursor(driver).execute(call.statement.sql, call.statement.bind(call.values), binary=True)


def copy(
    driver: Driver, table: TableSpec, columns: Sequence[ColumnSpec], rows: Iterable[Row], then: Sequence[Call]
) -> int:
    names = ", ".join(quote(column.name) for column in columns)
    cursor = Cursor(driver)
    with cursor.copy(fill(COPY, {"table": table_name(table), "columns": names}).encode()) as copy:
        for row in rows:
            copy.write_row(row)
    for call in then if cursor.rowcount else ():
        execute_call(driver, call)
    return cursor.rowcount


def roll_back(driver: Driver, behind: Sequence[Words] = ()) -> None:
    """End the transaction that a failure left open, if any, and say what follows that; one that cannot is closed."""
    if driver.closed:
        return
    idle = driver.pgconn.transaction_status == TransactionStatus.IDLE
    try:
        if behind:
            with pipelined(driver) if psycopg.Pipeline.is_supported() else nullcontext():
                say(driver, [*(() if idle else ((ROLLBACK, ()),)), *behind])
        elif not idle:
            driver.rollback()
    except psycopg.Error:
        driver.close()
