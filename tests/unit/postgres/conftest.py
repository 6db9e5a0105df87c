"""A dialect, and a pool of its own, on the test's schema."""

from collections.abc import Iterator

import pytest

from sqlqueue.dialect import Pool, PoolSettings
from sqlqueue_postgres import PostgresDialect
from tests.support.database import Database


@pytest.fixture
def dialect(postgres_database: Database) -> PostgresDialect:
    return PostgresDialect(postgres_database.url)


@pytest.fixture
def pool(dialect: PostgresDialect) -> Iterator[Pool]:
    opened = dialect.open_pool(PoolSettings(size=3))
    yield opened
    opened.close()
