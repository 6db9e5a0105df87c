"""What the database says of itself: columns, clock, whether it can be written, how it would run a statement."""

import re
import sqlite3
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Any

from sqlqueue.dialect import ColumnFacts, Connection, Row
from sqlqueue.errors import SchemaError
from sqlqueue.roles import Role
from sqlqueue.spec import TableSpec
from sqlqueue.sql import Call, Statement, fill
from sqlqueue_sqlite.connection import retry_while_locked
from sqlqueue_sqlite.database import fork_lock
from sqlqueue_sqlite.fragments import NOW_TEXT
from sqlqueue_sqlite.trouble import READONLY, primary
from sqlqueue_sqlite.values import read_moment

# Hidden columns are 1 (of a virtual table), 2 and 3 (generated).
COLUMNS = 'SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?1, ?2)'

SCHEMAS = "SELECT name FROM pragma_database_list"

EXPLAIN = "EXPLAIN {statement}"
EXPLAIN_QUERY_PLAN = "EXPLAIN QUERY PLAN {statement}"

READ_CLOCK = "SELECT {now}"

QUERY_ONLY = "PRAGMA query_only"

# Rolled back. BEGIN IMMEDIATE alone succeeds on a database that can only be read.
WRITE = "CREATE TABLE sqlqueue_writable (unused)"

#: Seconds to wait for the write lock when a consumer starts.
LOCK_TIMEOUT = 10.0

_SORT = re.compile(r"USE TEMP B-TREE FOR .*ORDER BY")


def describe(connection: Connection, spec: TableSpec) -> Mapping[str, ColumnFacts] | None:
    """The table's columns by name; None where there is no such table."""
    if spec.schema and spec.schema.lower() not in {str(name).lower() for (name,) in _ask(connection, SCHEMAS)}:
        return None
    rows = _ask(connection, COLUMNS, {"table": spec.name, "schema": spec.schema})
    keys = sum(1 for row in rows if row[4])
    return {row[0]: _facts(row, alone=keys == 1) for row in rows} or None


def _facts(row: Row, *, alone: bool) -> ColumnFacts:
    _, type, not_null, default, key, hidden = row
    rowid = bool(key) and alone and type.strip().lower() == "integer"
    return ColumnFacts(
        type=type.partition("(")[0].strip().lower(),
        nullable=not not_null and not key,
        has_default=rowid or default is not None or hidden in (2, 3),
    )


def check_statement(connection: Connection, statement: Statement) -> None:
    """Have SQLite compile the statement; its error where it refuses."""
    _explain(connection, EXPLAIN, statement)


def check_writable(connection: Connection, shown: str) -> None:
    """Take the write lock once; `SchemaError` where the database can only be read."""
    if _ask(connection, QUERY_ONLY)[0][0]:
        raise SchemaError(f"the SQLite database {shown}: this connection has PRAGMA query_only set; unset it")
    try:
        retry_while_locked(partial(_write_nothing, connection.driver), monotonic() + LOCK_TIMEOUT)
    except sqlite3.OperationalError as error:
        if primary(error) != READONLY:
            raise
        raise SchemaError(
            f"the SQLite database {shown} can only be read ({error}); let this program write the file and its directory"
        ) from error


def _write_nothing(driver: sqlite3.Connection) -> None:
    with fork_lock:
        driver.execute("BEGIN IMMEDIATE")
        try:
            driver.execute(WRITE)
        finally:
            driver.execute("ROLLBACK")


def read_clock(connection: Connection) -> datetime:
    """SQLite's clock, which is the host's, to the millisecond."""
    return read_moment(_ask(connection, fill(READ_CLOCK, {"now": NOW_TEXT}))[0][0])


def lacks_index(connection: Connection, statement: Statement, spec: TableSpec) -> bool:
    """Whether a claim must sort the table's rows, or read other groups' and finished ones, for want of an index.

    A sort of the few rows that the claim's ranges yield is none of the table's; a walk by id serves a claim by id.
    """
    steps: dict[int, list[str]] = {}
    for _, parent, _, detail in _explain(connection, EXPLAIN_QUERY_PLAN, statement):
        steps.setdefault(parent, []).append(detail)
    walk_helps = not spec.has(Role.GROUP) and not spec.has(Role.PROCESSED_AT)
    return any(_suffers(details, spec, walk_helps) for details in steps.values())


def _suffers(details: Sequence[str], spec: TableSpec, walk_helps: bool) -> bool:
    reads = [detail for detail in details if _reads_many(detail, spec)]
    if any(_SORT.match(detail) for detail in details):
        return bool(reads)
    return not walk_helps and any(detail.startswith("SCAN") and " USING " not in detail for detail in reads)


def _reads_many(detail: str, spec: TableSpec) -> bool:
    """Whether a step of the plan reads the table other than one row by its id."""
    plain = detail.replace("SCAN TABLE ", "SCAN ").replace("SEARCH TABLE ", "SEARCH ")  # before SQLite 3.36
    by_id = plain.endswith(("USING INTEGER PRIMARY KEY (rowid=?)", f"({spec.id.name}=?)"))
    return not by_id and f"{plain} ".startswith((f"SCAN {spec.name} ", f"SEARCH {spec.name} "))


def _explain(connection: Connection, how: str, statement: Statement) -> list[Row]:
    values = {name: [None] if name in statement.given else None for name in statement.parameters}
    return _ask(connection, fill(how, {"statement": statement.text}), values, given=statement.given)


def _ask(
    connection: Connection, text: str, values: Mapping[str, Any] | None = None, *, given: tuple[str, ...] = ()
) -> list[Row]:
    """The rows of a query, whose values are in the order of its placeholders."""
    values = values or {}
    question = Statement(name="ask", text=text, parameters=tuple(values), given=given, width=1, writes=False)
    return connection.run([Call(question, values)])[0]
