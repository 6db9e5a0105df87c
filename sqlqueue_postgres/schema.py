"""What is asked of the database when a consumer starts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from os import getpid
from typing import Any

import psycopg

from sqlqueue.dialect import ColumnFacts, Connection
from sqlqueue.errors import SchemaError, Unsupported
from sqlqueue.spec import TableSpec
from sqlqueue.sql import Call, Statement, fill
from sqlqueue_postgres import values
from sqlqueue_postgres.adopted import execute
from sqlqueue_postgres.ddl import quote, table_name
from sqlqueue_postgres.loan import Driver

OLDEST = 130000

# The kind of relation that a name means along the search path.
RELATION = """
-- sqlqueue: find the table
SELECT c.oid::bigint, c.relkind::text FROM pg_class AS c WHERE c.oid = to_regclass($1)
"""

# A domain is told by its base type, which is what its values come as.
COLUMNS = """
-- sqlqueue: describe the table
WITH RECURSIVE types(attnum, type, modifier, filled) AS (
    SELECT attnum, atttypid, atttypmod, NOT attnotnull FROM pg_attribute
    WHERE attrelid = $1::oid AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT attnum, typbasetype, typtypmod, filled AND NOT typnotnull
    FROM types JOIN pg_type ON pg_type.oid = type AND typtype = 'd'
)
SELECT a.attname::text, lower(format_type(types.type, NULL)), types.filled, types.modifier,
       a.atthasdef OR a.attidentity <> ''
FROM types
JOIN pg_type AS t ON t.oid = types.type AND t.typtype <> 'd'
JOIN pg_attribute AS a ON a.attrelid = $1::oid AND a.attnum = types.attnum
"""

WRITABLE = """
-- sqlqueue: may we write
SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'
"""

CLOCK = Statement(
    name="read the clock",
    text="-- sqlqueue: read the clock\nSELECT clock_timestamp()",
    parameters=(),
    width=1,
    writes=False,
)

PREPARE = """
PREPARE {name} AS
{text}
"""

# Looks for the privileges as well, and runs nothing.
EXPLAIN = """
EXPLAIN (FORMAT JSON) EXECUTE {name}{arguments}
"""

DEALLOCATE = """
DEALLOCATE {name}
"""

# Only what lacks an index still reads or sorts the table then.
PREFER_INDEXES = """
SELECT set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_sort', 'off', true),
       set_config('enable_incremental_sort', 'off', true),
       set_config('enable_bitmapscan', 'off', true)
"""

TABLE_KINDS = {"r", "p", "f"}  # tables, partitioned tables, foreign tables
OTHER_KINDS = {"v": "a view", "m": "a materialized view", "i": "an index", "S": "a sequence", "c": "a type"}

_NUMBERS = count()


def check_server(driver: Driver) -> None:
    version = driver.info.server_version
    if version < OLDEST:
        raise Unsupported(f"the server is PostgreSQL {version // 10000}; sqlqueue needs {OLDEST // 10000} or newer")


def describe(driver: Driver, spec: TableSpec) -> Mapping[str, ColumnFacts] | None:
    found = execute(driver, RELATION, (table_name(spec),))
    if not found:
        return None
    oid, kind = found[0]
    if kind not in TABLE_KINDS:
        raise SchemaError(f"{spec.full_name!r} is {OTHER_KINDS.get(kind, 'no table')}; a queue needs a table")
    return {
        name: ColumnFacts(type=type_, nullable=nullable, precision=_precision(type_, modifier), has_default=has_default)
        for name, type_, nullable, modifier, has_default in execute(driver, COLUMNS, (oid,))
    }


def _precision(type_: str, modifier: int) -> int | None:
    return modifier if type_ in values.TIMESTAMPS and modifier >= 0 else None


def check_writable(driver: Driver) -> None:
    in_recovery, read_only = execute(driver, WRITABLE)[0]
    if in_recovery:
        raise SchemaError("the server is a standby in recovery, which only reads; connect to the primary")
    if read_only:
        raise SchemaError(
            "transactions on this connection are read-only (default_transaction_read_only); "
            "connect as a role, or to a database, that may write"
        )


def read_clock(connection: Connection) -> datetime:
    """The server's clock, read as a connection runs calls: also within a caller's pipeline or transaction."""
    return values.moment(connection.run([Call(CLOCK)])[0][0][0])


def check_statement(driver: Driver, statement: Statement) -> None:
    try:
        with _prepared(driver, statement) as explain:
            execute(driver, explain)
    except psycopg.Error as error:
        # The driver's own error, saying which of the statements it was about (add_note is not there in 3.10).
        error.args = (f"{error.args[0] if error.args else error}\nin the statement: {statement.name}",)
        raise


def lacks_index(driver: Driver, statement: Statement) -> bool:
    with _prepared(driver, statement) as explain:
        execute(driver, PREFER_INDEXES)
        plan = execute(driver, explain)[0][0][0]["Plan"]
    return any(_reads_all(node) or _sorts_all(node) for node in _nodes(plan))


@contextmanager
def _prepared(driver: Driver, statement: Statement) -> Iterator[str]:
    """The EXPLAIN of the prepared statement, in a transaction that is rolled back; nothing stays prepared."""
    name = quote(f"sqlqueue_check_{getpid()}_{next(_NUMBERS)}")
    arguments = ", ".join(["NULL"] * len(statement.parameters))
    with driver.transaction(force_rollback=True):
        with driver.transaction():
            execute(driver, fill(PREPARE, {"name": name, "text": statement.text}))
        try:
            with driver.transaction():
                yield fill(EXPLAIN, {"name": name, "arguments": f"({arguments})" if arguments else ""})
        finally:
            execute(driver, fill(DEALLOCATE, {"name": name}))


Plan = Mapping[str, Any]


def _nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _reads_all(node: Plan) -> bool:
    return bool(node["Node Type"] == "Seq Scan")


#: What hands rows through; a Limit ends the search, for few rows come out of it, and so does a join by key.
_PASSES = {"Sort", "Incremental Sort", "LockRows", "Result", "Append", "Merge Append", "Subquery Scan", "Gather"}
_SCANS = {"Index Scan", "Index Only Scan", "Bitmap Heap Scan", "Foreign Scan"}


def _sorts_all(node: Plan) -> bool:
    return node["Node Type"] in ("Sort", "Incremental Sort") and any(_unlimited(child) for child in _inputs(node))


def _unlimited(node: Plan) -> bool:
    if node["Node Type"] in _SCANS:
        return True
    return node["Node Type"] in _PASSES and any(_unlimited(child) for child in _inputs(node))


def _inputs(node: Plan) -> list[Plan]:
    """What a node's rows come from; an InitPlan, such as a WITH part, only stands there."""
    return [child for child in node.get("Plans", ()) if child["Parent Relationship"] not in ("InitPlan", "SubPlan")]
