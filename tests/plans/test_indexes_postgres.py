"""The warning of a missing index on PostgreSQL."""

from operator import attrgetter

import pytest

from tests.golden.golden import CASES, LOCK_CASES, Case
from tests.plans.indexing import check_warnings
from tests.support.database import Database

NAMES = "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() AND indexname LIKE '%_idx'"


@pytest.mark.parametrize("case", [case for case in CASES + LOCK_CASES if case.strategy], ids=attrgetter("name"))
def test_a_claim_without_its_index_is_warned_of_and_one_with_the_recommended_index_is_not(
    postgres_database: Database, case: Case, caplog: pytest.LogCaptureFixture
) -> None:
    check_warnings(postgres_database, NAMES, case, caplog)
