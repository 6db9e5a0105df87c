"""What a claim of FIFO lines costs on PostgreSQL, beside a long line and beside many that are held up."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import attrs
import psycopg
import pytest

from sqlqueue import Broker
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.sql import Call
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.row_lock import RowLock
from sqlqueue.testing import ManualClock
from tests.golden.golden import Case, without_lease
from tests.plans.lines_backlog import DECLARED, calls_of_a_claim, filled, group_of, held_up
from tests.plans.test_plans_postgres import CLAIM_INDEX, Plan, indexes, nodes
from tests.support.database import Database
from tests.support.postgres import outwait_others

SHAPES = pytest.mark.parametrize("declared", DECLARED, ids=attrgetter("__name__"))
BOTH = pytest.mark.parametrize(("strategy", "limit"), [(Lease, 16), (RowLock, 1)], ids=["lease", "row lock"])


def explained(connection: "psycopg.Connection[Any]", calls: Sequence[Call], mode: str) -> list[Plan]:
    """The plans of the calls that are run one after the other in a transaction, and undone."""
    plans: list[Plan] = []
    outwait_others(connection)
    with connection.transaction(force_rollback=True):
        connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
        for number, call in enumerate(calls):
            values = call.statement.bind(call.values)
            arguments = f"({', '.join(['%s'] * len(values))})" if values else ""
            execute = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE look_{number}{arguments}"
            connection.execute(f"PREPARE look_{number} AS {call.statement.text}")
            row = psycopg.ClientCursor(connection).execute(execute, values).fetchone()
            connection.execute(f"DEALLOCATE look_{number}")
            assert row is not None
            plans.append(row[0][0]["Plan"])
    return plans


def by_strategy(declared: type, strategy: type, clock: ManualClock) -> TableSpec:
    return attrs.evolve(spec_of(declared) if strategy is Lease else without_lease(declared), clock=clock)


def buffers(plan: Plan) -> int:
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


#: Buffers that a claim of so many rows may read to find them, and to write or lock them; and a look ahead, which sees a
#: thousand lines.
WALK, ROW, AHEAD = 150, 30, 15_000


@BOTH
@SHAPES
def test_a_claim_beside_a_long_line_reads_few_buffers_by_the_claims_index(
    postgres_database: Database, declared: type, strategy: type, limit: int
) -> None:
    """PAINS 16: planned for its values or for any."""
    clock = ManualClock()
    spec = by_strategy(declared, strategy, clock)
    with Broker(postgres_database.url) as broker:
        filled(postgres_database, broker, declared, clock)
        case = Case("", spec, strategy, group_of(spec))
        calls = calls_of_a_claim(broker.queue(spec, case.group), case, limit, limit)
        ((index,),) = postgres_database.execute(CLAIM_INDEX, spec.name)
        for mode in ("force_custom_plan", "force_generic_plan"):
            walk, take, ahead = explained(postgres_database.connect(), calls, mode)
            assert [{index}, {index, f"{spec.name}_pkey"}] == [indexes(walk), indexes(take)]
            assert buffers(walk) <= WALK
            assert buffers(take) <= limit * ROW
            assert buffers(ahead) <= AHEAD
            for plan in (walk, take, ahead):
                assert "Seq Scan" not in {node["Node Type"] for node in nodes(plan)}


@BOTH
@SHAPES
def test_a_claim_among_lines_that_are_all_held_up_reads_some_of_them_at_a_time(
    postgres_database: Database, declared: type, strategy: type, limit: int
) -> None:
    clock = ManualClock()
    spec = by_strategy(declared, strategy, clock)
    with Broker(postgres_database.url) as broker:
        held_up(postgres_database, broker, declared, clock)
        case = Case("", spec, strategy, group_of(spec))
        calls = calls_of_a_claim(broker.queue(spec, case.group), case, limit, 0)
        walks = [call for call in calls if call.statement.name == "walk the lines"]
        assert len(walks) == 4  # a thousand each, and none behind the last one
        plans = explained(postgres_database.connect(), calls, "force_generic_plan")
        assert max(map(buffers, plans)) <= AHEAD
        for plan in plans:
            assert "Seq Scan" not in {node["Node Type"] for node in nodes(plan)}
