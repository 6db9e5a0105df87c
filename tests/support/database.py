"""A database of one test's own, seen as another program sees it: through the plain driver."""

import re
import select
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import attrs

from tests.support.availability import Label

# A quoted literal or name, or one of the two signs that psycopg reads otherwise than SQLite does.
_SIGNS = re.compile(r"""'[^']*'|"[^"]*"|[?%]""")


def psycopg_placeholders(sql: str) -> str:
    """`?` outside of quotes becomes `%s`; every `%` is doubled, for psycopg reads them within quotes as well."""
    return _SIGNS.sub(lambda sign: "%s" if sign[0] == "?" else sign[0].replace("%", "%%"), sql)


def still_open(connection: Any) -> bool:
    """Whether an idle psycopg connection can be used again: a server that ended it has left something to read."""
    return not connection.closed and not select.select([connection], [], [], 0)[0]


@attrs.frozen
class Database:
    """One test's database.

    `url` is for `sqlqueue.Broker`; `name` is the SQLite file or the PostgreSQL schema, which is also the
    `application_name` of the connections that are opened through `url`.
    """

    url: str
    kind: Literal["sqlite", "postgres"]
    label: Label
    name: str
    _dial: Callable[[], Any] = attrs.field(repr=False)
    _opened: list[Any] = attrs.field(factory=list, init=False, repr=False, eq=False)
    _spare: list[Any] = attrs.field(factory=list, init=False, repr=False, eq=False)

    def connect(self) -> Any:
        """A driver's connection (psycopg or sqlite3) of a foreign program, in autocommit mode.

        It may be used from any thread, one at a time, and is closed when the test ends, if not before.
        """
        connection = self._dial()
        self._opened.append(connection)
        return connection

    def execute(self, sql: str, *params: object) -> list[tuple[Any, ...]]:
        """Run one statement, committed, as another program; `?` is the placeholder on every database."""
        connection = self._taken()
        try:
            if self.kind == "sqlite":
                cursor = connection.execute(sql, params)
            elif params:
                cursor = connection.execute(psycopg_placeholders(sql), params)
            else:
                cursor = connection.execute(sql)
            rows = cursor.fetchall() if cursor.description else []
        except BaseException:
            connection.close()
            raise
        self._put_back(connection)
        return rows

    def _taken(self) -> Any:
        """A connection for one statement. Those to PostgreSQL are kept, for each costs it a process."""
        try:
            while not still_open(kept := self._spare.pop()):
                kept.close()
            return kept
        except IndexError:
            connection = self._dial()
        if self.kind == "postgres":
            connection.prepare_threshold = None  # tables change under it
        return connection

    def _put_back(self, connection: Any) -> None:
        if self.kind == "sqlite":
            connection.close()
        else:
            self._spare.append(connection)

    def script(self, sql: str) -> None:
        """Run several statements, such as the DDL that the library prints."""
        connection = self._dial()
        try:
            if self.kind == "sqlite":
                connection.executescript(sql)
            else:
                connection.execute(sql)
        finally:
            connection.close()

    def close(self) -> None:
        """Close what `connect` opened, and what `execute` has kept."""
        for connections in (self._opened, self._spare):
            while connections:
                connections.pop().close()


def sqlite_file(path: Path) -> Database:
    """A SQLite database in the file `path`, which need not exist."""

    def dial() -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=10, isolation_level=None, check_same_thread=False)

    return Database(url=f"sqlite:///{path}", kind="sqlite", label="sqlite", name=str(path), dial=dial)
