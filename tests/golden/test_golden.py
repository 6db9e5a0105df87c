"""The statements for SQLite, as they are kept: a change of SQL is a difference that one can read."""

from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path

import pytest

from tests.golden.golden import CASES, LOCK_CASES, Case, compare


@pytest.mark.parametrize("case", CASES, ids=attrgetter("name"))
def test_the_statements_are_those_that_are_kept(case: Case) -> None:
    compare("sqlite", "sqlite://", case)


@pytest.mark.parametrize(("directory", "cases"), [("sqlite", CASES), ("postgres", CASES + LOCK_CASES)])
def test_no_file_is_left_of_a_declaration_that_is_not_kept_any_more(directory: str, cases: Sequence[Case]) -> None:
    kept = {path.stem for path in (Path(__file__).parent / directory).glob("*.sql")}
    assert kept == {case.name for case in cases}
