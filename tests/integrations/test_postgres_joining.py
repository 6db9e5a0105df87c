"""Enqueueing in a transaction of the caller's, on PostgreSQL."""

from collections.abc import Iterator

import pytest

from tests.integrations.callers import POSTGRES, Caller
from tests.integrations.joining import JoiningTests
from tests.support.database import Database


class TestJoiningOnPostgreSQL(JoiningTests):
    elsewhere = "sqlite://"

    @pytest.fixture
    def joined(self, postgres_database: Database) -> Database:
        return postgres_database

    @pytest.fixture(params=POSTGRES)
    def caller(self, request: pytest.FixtureRequest, joined: Database) -> Iterator[Caller]:
        with POSTGRES[request.param](joined) as caller:
            yield caller
