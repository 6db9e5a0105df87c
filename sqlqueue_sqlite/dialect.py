"""SQLite as sqlqueue asks it: one writer, no row locks, and a watcher in place of notifications."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar
from uuid import UUID

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
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Statement
from sqlqueue_sqlite import ddl, fragments, handles, lines, misfits, moments, schema, trouble, values
from sqlqueue_sqlite.adopted import AdoptedConnection
from sqlqueue_sqlite.location import Location
from sqlqueue_sqlite.pool import SQLitePool
from sqlqueue_sqlite.waker import WATCH_INTERVAL, DataVersionWaker


class SQLiteDialect(Dialect):
    """The dialect of one database file, or of one database in memory.

    `watch_interval`: seconds between two looks for other programs' commits.
    """

    name: ClassVar[str] = "sqlite"
    capabilities: ClassVar[Capabilities] = Capabilities(
        row_locks=False, concurrent_claims=False, session_locks=False, notifies=False, watches=True
    )

    def __init__(self, location: Location, *, watch_interval: float = WATCH_INTERVAL) -> None:
        self._location = location
        self._watch_interval = watch_interval

    @property
    def source(self) -> str:
        return self._location.shown

    def placeholder(self, number: int) -> str:
        return f"?{number}"

    # -- fragments --------------------------------------------------------------------------------------------

    def now(self, column: ColumnSpec) -> str:
        return fragments.now(column)

    def later(self, column: ColumnSpec, seconds: str) -> str:
        return fragments.later(column, seconds)

    def any_of(self, column: ColumnSpec, expression: str, name: str) -> str:
        return fragments.any_of(expression, name)

    def list_encoder(self) -> Converter | None:
        return values.quoted_list

    def earliest(self, column: ColumnSpec) -> str:
        return fragments.earliest(column)

    def due(self, moment: str, column: ColumnSpec, now: str) -> tuple[str, ...]:
        return fragments.due(moment, column, now)

    def ahead(self, moment: str, column: ColumnSpec, now: str) -> tuple[tuple[str, str], ...]:
        return fragments.ahead(moment, column, now)

    def ended(self, moment: str, column: ColumnSpec, now: str) -> str:
        return fragments.ended(moment, column, now)

    def each_level(self, spec: TableSpec, rows: str, order: Sequence[str]) -> str:
        id = f"{self.quote(spec.name)}.{self.quote(spec.id.name)}"
        return fragments.each_level(self.table(spec), id, rows, order)

    def walk_lines(self, parts: Mapping[str, str], guard: str) -> str:
        return lines.walk(parts)

    def text_of(self, column: ColumnSpec, expression: str) -> str:
        return fragments.text_of(expression)

    def keep_lines(self, column: ColumnSpec) -> str:
        return lines.LAST

    # -- values -----------------------------------------------------------------------------------------------

    def encoder(self, column: ColumnSpec) -> Converter | None:
        return values.encoder(column)

    def now_encoder(self, column: ColumnSpec) -> Converter | None:
        if values.is_moment(column) and values.is_a(column, int):
            return moments.to_seconds_passed
        return values.encoder(column)

    def decoder(self, column: ColumnSpec) -> Converter | None:
        return values.decoder(column)

    def spellings(self, column: ColumnSpec, value: Any) -> Sequence[Any]:
        return values.uuid_spellings(value) if isinstance(value, UUID) else super().spellings(column, value)

    # -- connections ------------------------------------------------------------------------------------------

    def open_pool(self, settings: PoolSettings) -> Pool:
        return SQLitePool(self._location, settings)

    def adopt(self, connection: Any) -> Connection | None:
        return AdoptedConnection(connection) if isinstance(connection, sqlite3.Connection) else None

    def waker(self, pool: Pool, channels: Sequence[str], wake: Callable[[Hint], None], *, notify: bool) -> Waker | None:
        """Watches the whole database, with or without `notify`, on a connection that is not the pool's."""
        return DataVersionWaker(self._location, wake, watch_interval=self._watch_interval)

    # -- the schema -------------------------------------------------------------------------------------------

    def create_table(self, spec: TableSpec) -> tuple[str, ...]:
        return ddl.create_table(self, spec)

    def add_column(self, spec: TableSpec, column: ColumnSpec) -> str:
        return ddl.add_column(self, spec, column)

    def create_index(self, spec: TableSpec, keys: Sequence[str], where: str) -> str:
        return ddl.create_index(self, spec, keys, where)

    def check_server(self, connection: Connection) -> None:
        handles.check_version(self._location)

    def describe(self, connection: Connection, spec: TableSpec) -> Mapping[str, ColumnFacts] | None:
        return schema.describe(connection, spec)

    def misfit(self, column: ColumnSpec, facts: ColumnFacts) -> str | None:
        return misfits.misfit(column, facts)

    def check_statement(self, connection: Connection, statement: Statement) -> None:
        schema.check_statement(connection, statement)

    def check_writable(self, connection: Connection) -> None:
        schema.check_writable(connection, self._location.shown)

    def lacks_index(self, connection: Connection, statement: Statement, spec: TableSpec) -> bool:
        return schema.lacks_index(connection, statement, spec)

    def read_clock(self, connection: Connection) -> datetime:
        return schema.read_clock(connection)

    # -- judgement --------------------------------------------------------------------------------------------

    def classify(self, error: BaseException) -> Trouble:
        return trouble.classify(error)
