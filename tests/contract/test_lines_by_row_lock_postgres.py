"""FIFO lines by row lock, on the databases with row locks."""

import pytest

from sqlqueue.testing.contract import (
    Database,
    RowLockLinesAtWorkContract,
    RowLockLinesContract,
    RowLockManyLinesContract,
)


class TestRowLockLines(RowLockLinesContract):
    @pytest.fixture
    def database(self, postgres_database: Database) -> Database:
        return postgres_database


class TestRowLockManyLines(RowLockManyLinesContract):
    @pytest.fixture
    def database(self, postgres_database: Database) -> Database:
        return postgres_database


class TestRowLockLinesAtWork(RowLockLinesAtWorkContract):
    @pytest.fixture
    def database(self, postgres_database: Database) -> Database:
        return postgres_database
