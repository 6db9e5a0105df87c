"""Enqueueing in a transaction of the caller's, on SQLite."""

from collections.abc import Iterator
from typing import Any

import pytest

from sqlqueue.dialect import Dialect
from sqlqueue.hookspecs import hookimpl
from sqlqueue.plugins import manager
from sqlqueue_sqlite import SQLiteDialect
from sqlqueue_sqlite.database import parse
from tests.integrations.callers import SQLITE, Caller
from tests.integrations.joining import JoiningTests
from tests.support.database import Database


class Unknown(SQLiteDialect):
    """A database that is none of SQLite's."""

    def adopt(self, connection: Any) -> None:
        return None


class Plugin:
    @hookimpl
    def sqlqueue_dialect(self, source: Any) -> Dialect | None:
        return Unknown(parse("sqlite://")) if source == "unknown://x" else None


class TestJoiningOnSQLite(JoiningTests):
    elsewhere = "unknown://x"

    @pytest.fixture(autouse=True)
    def _plugin(self) -> Iterator[None]:
        plugin = Plugin()
        manager().register(plugin)
        yield
        manager().unregister(plugin)

    @pytest.fixture
    def joined(self, sqlite_database: Database) -> Database:
        sqlite_database.execute("PRAGMA journal_mode = WAL")
        return sqlite_database

    @pytest.fixture(params=SQLITE)
    def caller(self, request: pytest.FixtureRequest, joined: Database) -> Iterator[Caller]:
        with SQLITE[request.param](joined) as caller:
            yield caller
