"""What the search for unprocessed records, and a pruning, cost on PostgreSQL beside many that are processed."""

from sqlqueue import Broker
from tests.plans.records_backlog import calls_of_tracking, filled
from tests.plans.test_line_plans_postgres import buffers, explained
from tests.plans.test_plans_postgres import indexes, nodes
from tests.support.database import Database

#: Buffers that finding ten records, and deleting them, may read.
MOST_BUFFERS = 150


def test_unprocessed_records_and_old_ones_are_found_by_their_indexes(postgres_database: Database) -> None:
    """Planned for their values or for any, with statistics or before there are any."""
    with Broker(postgres_database.url) as broker:
        filled(postgres_database, broker)
        connection = postgres_database.connect()
        for prepare in ("VACUUM outbox", "ANALYZE outbox"):  # the rows were all unprocessed once, and in that index
            connection.execute(prepare)
            for mode in ("force_custom_plan", "force_generic_plan"):
                for plan in explained(connection, calls_of_tracking(broker), mode):
                    assert "Seq Scan" not in {node["Node Type"] for node in nodes(plan)}
                    assert indexes(plan) != set()
                    assert buffers(plan) <= MOST_BUFFERS
