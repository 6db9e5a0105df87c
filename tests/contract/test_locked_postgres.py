"""Rows that others have locked, on the databases with row locks."""

import pytest

from sqlqueue.testing.contract import Database, RowLockContract


class TestRowLocks(RowLockContract):
    @pytest.fixture
    def database(self, postgres_database: Database) -> Database:
        return postgres_database
