"""The warning of a missing index on SQLite."""

from operator import attrgetter

import pytest

from tests.golden.golden import CASES, Case
from tests.plans.indexing import check_warnings
from tests.support.database import Database

NAMES = "SELECT name FROM sqlite_master WHERE type = 'index' AND name LIKE '%_claim_%'"


@pytest.mark.parametrize("case", [case for case in CASES if case.strategy], ids=attrgetter("name"))
def test_a_claim_without_its_index_is_warned_of_and_one_with_the_recommended_index_is_not(
    sqlite_database: Database, case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    check_warnings(sqlite_database, NAMES, case, caplog)
