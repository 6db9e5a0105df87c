"""What PostgreSQL answers to the core's questions."""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import quote as url_quote

import psycopg
from psycopg.conninfo import conninfo_to_dict
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
from sqlqueue_postgres import ddl, lines, schema, sessions, trouble, values
from sqlqueue_postgres.adopted import AdoptedConnection
from sqlqueue_postgres.names import LONGEST, literal
from sqlqueue_postgres.pool import OwnPool, UsersPool, connect_arguments
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
        self._shown = _shown(self._parameters(source)) if isinstance(source, str) else None

    # -- the source -------------------------------------------------------------------------------------------

    @property
    def source(self) -> str:
        if self._shown is not None:
            return self._shown
        assert not isinstance(self._source, str)
        conninfo, kwargs = connect_arguments(self._source)
        return _shown({**self._parameters(conninfo), **kwargs})

    @staticmethod
    def _parameters(conninfo: str) -> dict[str, Any]:
        try:
            found = conninfo_to_dict(conninfo)
        except psycopg.ProgrammingError:
            found = None  # the driver's message repeats the URL, and with it the password
        # A host that begins with an @ is an abstract socket; elsewhere the sign is a password's.
        if found is None or "@" in str(found.get("host", ""))[1:]:
            raise DeclarationError(
                "the PostgreSQL URL cannot be read; write postgresql://user:password@host:port/database, "
                "with signs such as @ or / in the password percent-encoded"
            )
        return found

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

    def walk_lines(self, parts: Mapping[str, str], guard: str) -> str:
        return lines.walk(parts, guard)

    def keep_lines(self, column: ColumnSpec) -> str:
        return fill(lines.KEEP, {"name": literal(column.name), "read_line": self.read(column, "line")})

    def kept_lines(self, spec: TableSpec, column: ColumnSpec) -> str:
        return fill(lines.KEPT, {"line": self.quote(column.name), "table": self.table(spec)})

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
        sessions.check_sessions(pool)

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


def _shown(parameters: Mapping[str, Any]) -> str:
    """The URL of these connection parameters, without any that could be secret."""
    part = {name: url_quote(str(value), safe=",:[]") for name, value in parameters.items() if value is not None}
    user = f"{part['user']}@" if "user" in part else ""
    port = f":{part['port']}" if "port" in part else ""
    return f"postgresql://{user}{part.get('host', part.get('hostaddr', ''))}{port}/{part.get('dbname', '')}"
