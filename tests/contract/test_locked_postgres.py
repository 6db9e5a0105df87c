import pytest

from sqlqueue.testing.contract.harness import Database
from sqlqueue.testing.contract.locked import RowLockContract


class TestRowLocks(RowLockContract):
    @pytest.fixture
    def database(self, postgres_database: Database) -> Database:
        return postgres_database
