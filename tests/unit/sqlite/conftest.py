"""The dialect on a real file, its pool, and a small table."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from sqlqueue import column
from sqlqueue.dialect import Connection, Pool, PoolSettings
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.sql import Call, Statement, statement
from sqlqueue.table import table
from sqlqueue_sqlite import SQLiteDialect, sqlqueue_dialect
from tests.support.database import Database

OpenPool = Callable[..., Pool]


@table("jobs")
class Job:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()


JOBS = spec_of(Job)


def dialect_of(url: str) -> SQLiteDialect:
    dialect = sqlqueue_dialect(url)
    assert isinstance(dialect, SQLiteDialect)
    return dialect


def compose(
    template: str, *, given: tuple[str, ...] = (), width: int = 0, writes: bool = True, name: str = "test"
) -> Statement:
    """A statement in SQLite's words, from `:names`."""
    return statement(name, template, {}, placeholder=lambda n: f"?{n}", given=given, width=width, writes=writes)


def call(template: str, *, given: tuple[str, ...] = (), writes: bool = True, **values: Any) -> Call:
    return Call(compose(template, given=given, writes=writes), values)


def ask(connection: Connection, template: str, **values: Any) -> list[tuple[Any, ...]]:
    return connection.run([call(template, writes=False, **values)])[0]


@pytest.fixture
def path(sqlite_database: Database) -> Path:
    return Path(sqlite_database.name)


@pytest.fixture
def dialect(sqlite_database: Database) -> SQLiteDialect:
    return dialect_of(sqlite_database.url)


@pytest.fixture
def open_pool(dialect: SQLiteDialect) -> Iterator[OpenPool]:
    """Open a pool on the test's file, or on another dialect's; it is closed when the test ends."""
    with ExitStack() as until_end:

        def open_one(on: SQLiteDialect | None = None, **settings: Any) -> Pool:
            pool = (on or dialect).open_pool(PoolSettings(**settings))
            until_end.callback(pool.close)
            return pool

        yield open_one


@pytest.fixture
def connection(dialect: SQLiteDialect, open_pool: OpenPool) -> Iterator[Connection]:
    """A pool's connection to a file with the table `jobs`."""
    with open_pool().connection() as lent:
        for text in dialect.create_table(JOBS):
            lent.run([Call(Statement(name="create", text=text, parameters=()))])
        yield lent


@pytest.fixture
def jobs() -> TableSpec:
    return JOBS
