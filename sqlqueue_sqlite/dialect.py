"""SQLite as sqlqueue asks it: one writer, no row locks, and a watcher in place of notifications."""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar
from uuid import UUID

from sqlqueue.dialect import Capabilities, Connection, Converter, Dialect, Hint, Pool, PoolSettings, Waker
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import fill
from sqlqueue_sqlite import ddl, fragments, schema, trouble, values
from sqlqueue_sqlite.adopted import AdoptedConnection
from sqlqueue_sqlite.database import Location
from sqlqueue_sqlite.pool import SQLitePool
from sqlqueue_sqlite.waker import WATCH_INTERVAL, DataVersionWaker


class SQLiteDialect(Dialect):
    """The dialect of one database file, or of one database in memory.

    `watch_interval`: seconds between two queries for other programs' commits.
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

    now = staticmethod(fragments.now)
    later = staticmethod(fragments.later)
    earliest = staticmethod(fragments.earliest)
    due = staticmethod(fragments.due)
    ahead = staticmethod(fragments.ahead)
    ended = staticmethod(fragments.ended)

    def any_of(self, column: ColumnSpec, expression: str, name: str) -> str:
        return fill(fragments.ANY_OF, {"expression": expression, "name": name})

    def list_encoder(self) -> Converter | None:
        return values.quoted_list

    def each_priority(self, spec: TableSpec, rows: str, order: Sequence[str]) -> str:
        table, id = self.table(spec), f"{self.quote(spec.name)}.{self.quote(spec.id.name)}"
        return fill(fragments.EACH_LEVEL, {"table": table, "id": id, "rows": rows, "order": ", ".join(order)})

    def walk_heads(self, parts: Mapping[str, str], guard: str) -> str:
        return fill(fragments.WALK_LINES, parts)

    def keep_heads(self, column: ColumnSpec) -> str:
        return fragments.LAST_LINE

    def text_of(self, column: ColumnSpec, expression: str) -> str:
        return fill(fragments.TEXT_OF, {"expression": expression})

    # -- values -----------------------------------------------------------------------------------------------

    encoder = staticmethod(values.encoder)
    now_encoder = staticmethod(values.now_encoder)
    decoder = staticmethod(values.decoder)

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

    create_table = ddl.create_table
    add_column = ddl.add_column
    create_index = ddl.create_index
    misfit = staticmethod(ddl.misfit)

    def check_server(self, connection: Connection) -> None:
        self._location.check()

    def check_writable(self, connection: Connection) -> None:
        schema.check_writable(connection, self._location.shown)

    describe = staticmethod(schema.describe)
    check_statement = staticmethod(schema.check_statement)
    lacks_index = staticmethod(schema.lacks_index)
    read_clock = staticmethod(schema.read_clock)

    # -- judgement --------------------------------------------------------------------------------------------

    classify = staticmethod(trouble.classify)
