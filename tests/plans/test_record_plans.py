"""What the search for unprocessed records, and a pruning, cost on SQLite beside many that are processed."""

import re

from sqlqueue import Broker
from tests.plans.records_backlog import calls_of_tracking, filled
from tests.plans.test_plans import MOST_STEPS, plan_of, steps_of
from tests.support.database import Database


def test_unprocessed_records_and_old_ones_are_found_by_their_indexes(sqlite_database: Database) -> None:
    with Broker(sqlite_database.url) as broker:
        filled(sqlite_database, broker)
        for call in calls_of_tracking(broker):
            details = [detail for step in plan_of(broker, call).values() for detail in step]
            reads = [one for one in details if re.match(r"(SCAN|SEARCH) (TABLE )?outbox\b", one)]
            by_index = [one for one in reads if "INDEX outbox_claim_" in one or "PRIMARY KEY (rowid=?)" in one]
            assert (by_index, reads != []) == (reads, True)
            assert [one for one in details if "TEMP B-TREE FOR ORDER" in one] == []
            assert steps_of(sqlite_database, call) < MOST_STEPS
