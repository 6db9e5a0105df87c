"""The statements for PostgreSQL, as they are kept. Nothing connects."""

from operator import attrgetter

import pytest

from tests.golden.golden import CASES, LOCK_CASES, Case, compare


@pytest.mark.postgres
@pytest.mark.parametrize("case", CASES + LOCK_CASES, ids=attrgetter("name"))
def test_the_statements_are_those_that_are_kept(case: Case) -> None:
    compare("postgres", "postgresql://", case)
