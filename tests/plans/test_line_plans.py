"""What a claim of FIFO lines costs on SQLite, beside a long line and beside many that are held up."""

from operator import attrgetter

import attrs
import pytest

from sqlqueue import Broker
from sqlqueue.spec import spec_of
from sqlqueue.testing import ManualClock
from tests.golden.golden import Case
from tests.plans.lines_backlog import DECLARED, calls_of_a_claim, filled, group_of, held_up
from tests.plans.test_plans import plan_of, steps_of
from tests.support.database import Database

SHAPES = pytest.mark.parametrize("declared", DECLARED, ids=attrgetter("__name__"))

#: Instructions of SQLite's machine: to find and take sixteen rows, and to see a thousand lines.
CLAIM, THOUSAND_LINES = 10_000, 400_000


@SHAPES
def test_a_claim_beside_a_long_line_takes_few_steps_by_the_claims_index(
    sqlite_database: Database, declared: type
) -> None:
    """PAINS 16"""
    clock = ManualClock()
    spec = attrs.evolve(spec_of(declared), clock=clock)
    with Broker(sqlite_database.url) as broker:
        filled(sqlite_database, broker, declared, clock)
        case = Case("", spec, group=group_of(spec))
        claim, ahead = calls_of_a_claim(broker.queue(spec, case.group), case, 16, 16)
        for call in (claim, ahead):
            details = [detail for step in plan_of(broker, call).values() for detail in step]
            assert [one for one in details if one.startswith("SCAN") and spec.name in one and "USING" not in one] == []
            assert [one for one in details if one.startswith("USE TEMP B-TREE FOR ORDER")] == []
        assert steps_of(sqlite_database, claim) <= CLAIM
        assert steps_of(sqlite_database, ahead) <= THOUSAND_LINES


@SHAPES
def test_a_claim_among_lines_that_are_all_held_up_reads_some_of_them_at_a_time(
    sqlite_database: Database, declared: type
) -> None:
    clock = ManualClock()
    spec = attrs.evolve(spec_of(declared), clock=clock)
    with Broker(sqlite_database.url) as broker:
        held_up(sqlite_database, broker, declared, clock)
        case = Case("", spec, group=group_of(spec))
        calls = calls_of_a_claim(broker.queue(spec, case.group), case, 16, 0)
        assert len([call for call in calls if call.statement.name == "walk the lines"]) == 4
        for call in calls:
            assert steps_of(sqlite_database, call) <= THOUSAND_LINES
