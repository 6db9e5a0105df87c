"""What PostgreSQL answers to the core's questions."""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

import psycopg
from psycopg_pool import ConnectionPool

from sqlqueue.dialect import (
    Capabilities,
    ColumnFacts,
    Connection,
    Converter,
    Dialect,
    Hint,
    Pool,
    PoolSettings,
    Trouble,
    Waker,
)
from sqlqueue.errors import DeclarationError
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Statement, fill
from sqlqueue_postgres import ddl, schema, sessions, trouble, values
from sqlqueue_postgres.adopted import AdoptedConnection
from sqlqueue_postgres.ddl import LONGEST, literal
from sqlqueue_postgres.pool import OwnPool, UsersPool, connect_arguments, read_url, shown
from sqlqueue_postgres.waker import PostgresWaker

# The payload comes back so that the statement fits into one with the insert that it tells of.
NOTIFY = """
SELECT pg_notify(:channel, :payload)::text
"""

#: Bytes that a notification can carry, and the payload that asks consumers to stop.
LONGEST_PAYLOAD = 7999
STOP = "stop_worker"

# Python has no room for later moments, and nobody waits for them.
END_OF_TIME = "'9999-12-31 00:00:00+00'::timestamptz"

# The cast says the value's type to the server, whatever number is bound. An interval of seconds alone knows neither
# days nor months, so no time zone of the session's reaches it.
LATER = "statement_timestamp() + make_interval(secs => CAST({seconds} AS double precision))"


# Of session and transaction locks on one number, in this database.
LOCKED_NUMBERS = """
SELECT (classid::bigint << 32) | objid::bigint AS number FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


# The ids that are returned are those that the rows had.
MOVE = """
WITH _gone AS (
    DELETE FROM {table}
    {using_given}
    WHERE {id} = {given_id} {fence}
    RETURNING {id} AS _id{kept}
),
_moved AS (
    INSERT INTO {destination} ({columns})
    SELECT {kept_values} FROM _gone
)
SELECT _id FROM _gone
"""

# A walk along the heads of FIFO keys: a loose index scan, which enters the index anew for each key. The first entry of
# a key in its index is its head, so each step is one probe, however long the key is: among 500,000 rows, 300,000 of
# them of one key, 16 heads took as long as without it (0.7 ms).
#
# From behind `from_line` to the end and, once, on from the start. The seed takes its type and collation, and that of
# `from_line`, from the column. A key's guard is tried for a head that is free, and for no more than asked for: `free`
# is computed over one row.
WALK = """
WITH RECURSIVE _lines AS (
    (
        SELECT line, id, FALSE AS taken, FALSE AS wrapped, 0 AS found, 0 AS seen FROM (
            SELECT {line} AS line, {id} AS id FROM {table}
            WHERE FALSE
            UNION ALL
            SELECT {from_line}, NULL
        ) AS _start
    )
    UNION ALL
    SELECT _next.line, _next.id, _guard.taken, _next.wrapped,
           _lines.found + COALESCE(_guard.taken, FALSE)::int, _lines.seen + 1
    FROM _lines
    CROSS JOIN LATERAL (
        (
            SELECT {line} AS line, {id} AS id, _lines.wrapped AS wrapped, {free} AS free FROM {table}
            WHERE {unfinished}{line} > _lines.line
            ORDER BY {keys}
            LIMIT 1
        )
        UNION ALL
        (
            SELECT {line}, {id}, TRUE, {free} FROM {table}
            WHERE {unfinished}{line} IS NOT NULL AND NOT _lines.wrapped
            ORDER BY {keys}
            LIMIT 1
        )
        LIMIT 1
    ) AS _next
    CROSS JOIN LATERAL (
        SELECT {taking} AS taken
    ) AS _guard
    WHERE _lines.found < {limit} AND _lines.seen < {most}
      AND (NOT _next.wrapped OR {from_line} IS NULL OR _next.line <= {from_line})
)
{select}
"""

TRY_GUARD = "CASE WHEN _next.free THEN {guard} END"

# What the walk guarded is kept for the statement behind it in the transaction, which has a snapshot of its own.
KEEP = """
SELECT set_config('sqlqueue.lines', COALESCE(json_agg(json_build_object({name}, line)) FILTER (WHERE taken),
                  '[]')::text, TRUE) AS kept,
       (array_agg({read_line} ORDER BY seen DESC))[1] AS last_line, max(seen) AS seen,
       count(*) FILTER (WHERE taken) AS taken, bool_or(wrapped) AS wrapped
FROM _lines
"""

# Read with care, for the planner may do so where no walk has been. As records of the table the keys have the column's
# own type, whatever the declaration calls it.
KEPT = """
(
    SELECT {line} AS line
    FROM json_populate_recordset(NULL::{table}, NULLIF(current_setting('sqlqueue.lines', TRUE), '')::json)
) AS _kept
"""


class PostgresDialect(Dialect):
    """PostgreSQL behind a URL, or behind the user's `psycopg_pool.ConnectionPool`."""

    name: ClassVar[str] = "PostgreSQL"
    capabilities: ClassVar[Capabilities] = Capabilities(
        row_locks=True, concurrent_claims=True, session_locks=True, notifies=True, dead_rows=True, time_precision=1e-6
    )
    # Not against those who only insert rows that refer to this one.
    skip_locked: ClassVar[str] = "FOR NO KEY UPDATE SKIP LOCKED"

    def __init__(self, source: "str | ConnectionPool[Any]") -> None:
        self._source = source
        # Once: reading the URL takes 170 µs, and `health()` may be asked often.
        self._shown = shown(read_url(source)) if isinstance(source, str) else None

    # -- the source -------------------------------------------------------------------------------------------

    @property
    def source(self) -> str:
        if self._shown is not None:
            return self._shown
        assert not isinstance(self._source, str)
        conninfo, kwargs = connect_arguments(self._source)
        return shown({**read_url(conninfo), **kwargs})

    # -- writing ----------------------------------------------------------------------------------------------

    def placeholder(self, number: int) -> str:
        return f"${number}"

    # -- fragments --------------------------------------------------------------------------------------------

    def now(self, column: ColumnSpec) -> str:
        return "statement_timestamp()"

    def later(self, column: ColumnSpec, seconds: str) -> str:
        return fill(LATER, {"seconds": seconds})

    def given(self, columns: Mapping[str, ColumnSpec]) -> str:
        arrays = ", ".join(f":{name}::{values.sql_type(column)}[]" for name, column in columns.items())
        return f"unnest({arrays}) AS _given({', '.join(columns)})"

    def any_of(self, column: ColumnSpec, expression: str, name: str) -> str:
        return f"{self.read(column, expression)} = ANY(:{name}::{values.sql_type(column)}[])"

    def earliest(self, column: ColumnSpec) -> str:
        return "'-infinity'::timestamptz"

    def due(self, moment: str, column: ColumnSpec, now: str) -> tuple[str, ...]:
        return (f"{moment} <= {now}",)

    def ahead(self, moment: str, column: ColumnSpec, now: str) -> tuple[tuple[str, str], ...]:
        return ((moment, f"{moment} > {now} AND {moment} < {END_OF_TIME}"),)

    def ended(self, moment: str, column: ColumnSpec, now: str) -> str:
        return f"{moment} <= {now}"

    def read(self, column: ColumnSpec, expression: str) -> str:
        kind = values.kind_of(column)
        return f"{expression}::text" if kind is not None and kind.python is str else expression

    def assigned(self, column: ColumnSpec, fact: ColumnFacts, expression: str) -> str:
        return f"{expression}::{fact.type}" if fact.type in values.JSON_TYPES else expression

    # The key's number stands in two columns of the view.
    locked_numbers: ClassVar[str] = LOCKED_NUMBERS
    relaxed: ClassVar[str] = "set_config('synchronous_commit', 'off', true)"

    moves: ClassVar[tuple[str, ...]] = (MOVE,)

    def number_of(self, key: str) -> str:
        return fill("hashtextextended({key}, 0)", {"key": key})

    def try_lock(self, number: str) -> str:
        return fill("pg_try_advisory_lock({number})", {"number": number})

    def unlock(self, number: str) -> str:
        return fill("pg_advisory_unlock({number})", {"number": number})

    def walk_heads(self, parts: Mapping[str, str], guard: str) -> str:
        taking = fill(TRY_GUARD, {"guard": guard}) if guard else "_next.free"
        return fill(WALK, {**parts, "taking": taking})

    def keep_heads(self, column: ColumnSpec) -> str:
        return fill(KEEP, {"name": literal(column.name), "read_line": self.read(column, "line")})

    def kept_heads(self, spec: TableSpec, column: ColumnSpec) -> str:
        return fill(KEPT, {"line": self.quote(column.name), "table": self.table(spec)})

    def guard(self, key: str) -> str:
        return fill("pg_try_advisory_xact_lock(hashtextextended({key}, 0))", {"key": key})

    # -- values -----------------------------------------------------------------------------------------------

    def encoder(self, column: ColumnSpec) -> Converter | None:
        return values.encoder(column)

    def decoder(self, column: ColumnSpec) -> Converter | None:
        return values.decoder(column)

    # -- connections ------------------------------------------------------------------------------------------

    def open_pool(self, settings: PoolSettings) -> Pool:
        if isinstance(self._source, str):
            return OwnPool(url=self._source, settings=settings)
        return UsersPool(self._source, settings=settings)

    def adopt(self, connection: Any) -> Connection | None:
        if isinstance(connection, psycopg.AsyncConnection):
            raise DeclarationError("an AsyncConnection serves an event loop; sqlqueue takes a psycopg.Connection")
        if is_psycopg2(connection):
            from sqlqueue_postgres.psycopg2 import adopt  # only for those who have it

            return adopt(connection)
        return AdoptedConnection(connection) if isinstance(connection, psycopg.Connection) else None

    def waker(self, pool: Pool, channels: Sequence[str], wake: Callable[[Hint], None], *, notify: bool) -> Waker | None:
        if not notify or not channels:
            return None
        assert isinstance(pool, OwnPool | UsersPool)
        url = self._source if isinstance(self._source, str) else None
        return PostgresWaker(pool, tuple(channels), wake, url)

    def notification(self, channel: str, payload: str) -> tuple[str, Mapping[str, Any]] | None:
        return NOTIFY, {"channel": channel, "payload": payload}

    def check_channel(self, channel: str, group: str | None) -> None:
        if len(channel.encode()) > LONGEST:
            raise DeclarationError(
                f"{channel!r} is longer than the {LONGEST} bytes of a notification's channel; "
                "shorten the table's name, or leave out notify=True"
            )
        if group is not None and len(group.encode()) > LONGEST_PAYLOAD:
            raise DeclarationError(
                f"the group {group[:40]!r}… is longer than the {LONGEST_PAYLOAD} bytes of a notification; shorten it, "
                "or leave out notify=True"
            )
        if group == STOP:
            raise DeclarationError(
                f"a group named {STOP!r} would read as the message that stops consumers; rename it, or leave out "
                "notify=True"
            )

    # -- the schema -------------------------------------------------------------------------------------------

    def create_table(self, spec: TableSpec) -> tuple[str, ...]:
        return ddl.create_table(spec)

    def add_column(self, spec: TableSpec, column: ColumnSpec) -> str:
        return ddl.add_column(spec, column)

    def create_notify(self, spec: TableSpec) -> tuple[str, ...]:
        return ddl.create_notify(spec)

    def create_index(self, spec: TableSpec, keys: Sequence[str], where: str) -> str:
        return ddl.create_index(spec, keys, where)

    def check_server(self, connection: Connection) -> None:
        schema.check_server(connection.driver)

    def check_sessions(self, pool: Pool) -> None:
        assert isinstance(pool, OwnPool | UsersPool)
        with pool.connection() as connection:
            sessions.check_sessions(connection.driver, pool.beside)

    def describe(self, connection: Connection, spec: TableSpec) -> Mapping[str, ColumnFacts] | None:
        return schema.describe(connection.driver, spec)

    def misfit(self, column: ColumnSpec, facts: ColumnFacts) -> str | None:
        return values.misfit(column, facts, self.quote(column.name))

    def check_statement(self, connection: Connection, statement: Statement) -> None:
        schema.check_statement(connection.driver, statement)

    def check_writable(self, connection: Connection) -> None:
        schema.check_writable(connection.driver)

    def lacks_index(self, connection: Connection, statement: Statement, spec: TableSpec) -> bool:
        return schema.lacks_index(connection.driver, statement)

    def read_clock(self, connection: Connection) -> datetime:
        return schema.read_clock(connection)

    # -- judgement --------------------------------------------------------------------------------------------

    def classify(self, error: BaseException) -> Trouble:
        return trouble.classify(error)


def is_psycopg2(connection: Any) -> bool:
    """Whether it is psycopg2's, which is not imported to find that out."""
    driver = sys.modules.get("psycopg2.extensions")
    return driver is not None and isinstance(connection, driver.connection)
