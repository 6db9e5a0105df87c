"""Two processes on one table, by row lock and advisory lock: no row is lost or in two hands, whoever is killed."""

from collections import Counter

import pytest

from tests.crash.racing import race
from tests.support.database import Database
from tests.support.strategies import SEATED, by_strategy

ROWS = 500


@pytest.mark.sample("sqlite-advisory", "postgres-row")
@by_strategy(*SEATED)
def test_two_processes_with_eight_workers_each_handle_each_row_once(database: Database, strategy: str) -> None:
    """PAINS 27; 20,000 rows are run by hand, see tests/crash/racing.py."""
    made = race(database.url, strategy, rows=ROWS, work=0.03)  # so that neither is done before the other begins
    assert made.times == Counter(range(1, ROWS + 1))
    assert (made.left, made.said, len(made.processes)) == (0, [], 2)


@pytest.mark.sample("postgres-advisory")
@by_strategy(*SEATED)
def test_processes_that_are_killed_lose_no_row_and_no_row_is_in_two_hands(database: Database, strategy: str) -> None:
    """PAINS 1 27"""
    made = race(database.url, strategy, rows=ROWS, work=0.05, kill_every=0.3)
    assert made.times.keys() == set(range(1, ROWS + 1))
    assert made.overlaps == []
    assert made.kills >= 1
    assert (made.left, made.said) == (0, [])


@pytest.mark.sample("postgres-single")
@by_strategy("single")
def test_rows_of_one_key_are_in_work_one_at_a_time_though_processes_are_killed(
    database: Database, strategy: str
) -> None:
    """PAINS 6: over all workers and processes; the key of a process that was killed is free again."""
    made = race(database.url, strategy, rows=40, work=0.06, kill_every=0.5)
    assert made.times.keys() == set(range(1, 41))
    assert made.side_by_side == []
    assert made.kills >= 1
    assert (made.left, made.said) == (0, [])
