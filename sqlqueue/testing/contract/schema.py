"""The checks at a start, and the tables that we recommend."""

import logging
from typing import Any

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.errors import SchemaError, Unsupported
from sqlqueue.roles import Role
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.sql import fill
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.blocked import LineJob
from sqlqueue.testing.contract.harness import Contract, Database, created, shown
from sqlqueue.testing.contract.tables import CountedJob, FullJob, Job, KeptJob, RankedJob
from sqlqueue.testing.drain import drain

# In types that every database knows, or takes for text.
COUNTED = """
CREATE TABLE counted_jobs (
    id {id},
    due_at {due_at},
    attempt {attempt},
    locked_until {locked_until},
    payload {payload}
)
"""

TYPES = {
    "id": "integer NOT NULL PRIMARY KEY",
    "due_at": "timestamp with time zone",
    "attempt": "integer",
    "locked_until": "timestamp with time zone",
    "payload": "varchar(200)",
}


#: `RankedJob` with ids that the program makes: in many databases they have an index of their own.
NAMED_RANKED = attrs.evolve(
    spec_of(RankedJob),
    columns=[
        attrs.evolve(one, type=str, generated=False) if one.role is Role.ID else one
        for one in spec_of(RankedJob).columns
    ],
)


def _misspelt(declared: type, field: str, name: str) -> TableSpec:
    spec = spec_of(declared)
    columns = [attrs.evolve(one, name=name) if one.field == field else one for one in spec.columns]
    return attrs.evolve(spec, columns=columns)


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "no index serves" in record.getMessage()]


class SchemaContract(Contract):
    """A start refuses what cannot work, names the table, the column and the mend, and touches no row."""

    def test_a_table_that_is_not_there_is_refused(self, broker: Broker) -> None:
        broker.queue(Job).handler(lambda message: None)
        with pytest.raises(SchemaError, match=r"'jobs'.*create_tables"), Consumer(broker):
            pass

    @pytest.mark.parametrize("field", [spec.field for spec in spec_of(FullJob).columns])
    def test_a_misspelt_column_is_refused_whatever_its_role(
        self, database: Database, broker: Broker, field: str
    ) -> None:
        """SUITE 6"""
        created(broker, FullJob, group="mail").enqueue("x")
        broker.queue(_misspelt(FullJob, field, "misspelt"), "mail").handler(lambda message: None)
        with pytest.raises(SchemaError, match=r"'full_jobs'.*'misspelt'"), Consumer(broker):
            pass
        assert len(shown(database, broker.queues[0], "id")) == 1

    @pytest.mark.parametrize(
        ("field", "type"),
        [("id", "varchar(20)"), ("due_at", "integer"), ("attempt", "varchar(20)"), ("locked_until", "integer")],
    )
    def test_a_column_that_cannot_hold_its_role_is_refused(
        self, database: Database, broker: Broker, field: str, type: str
    ) -> None:
        """SUITE 7"""
        broker.queue(CountedJob).handler(lambda message: None)
        database.execute(fill(COUNTED, {**TYPES, field: type}))
        with pytest.raises(SchemaError, match=f"'counted_jobs'.*'{field}'"), Consumer(broker):
            pass

    def test_columns_of_standard_types_hold_their_roles(self, database: Database, broker: Broker) -> None:
        queue = broker.queue(CountedJob)
        handled: list[Any] = []
        queue.handler(handled.append)
        database.execute(fill(COUNTED, TYPES))
        database.execute("INSERT INTO counted_jobs (id, attempt, payload) VALUES (1, 0, '1')")
        drain(broker)
        assert handled == [1]

    def test_a_start_that_was_refused_may_be_tried_again_once_the_table_is_there(
        self, database: Database, broker: Broker
    ) -> None:
        queue = broker.queue(Job)
        handled: list[Any] = []
        queue.handler(handled.append)
        consumer = Consumer(broker)
        with pytest.raises(SchemaError):
            consumer.start()
        assert consumer.health().state == "stopped"
        broker.create_tables()
        queue.enqueue("x")
        consumer.run_until_idle(10)
        assert handled == ["x"]

    def test_the_recommended_tables_are_made_once_and_leave_what_is_there_alone(
        self, database: Database, broker: Broker
    ) -> None:
        queue = created(broker, FullJob, group="mail")
        queue.enqueue("x")
        broker.create_tables()
        for text in broker.ddl(FullJob).split(";\n"):
            if text:
                database.execute(text)
        assert shown(database, queue, "payload") == [('"x"',)]

    @pytest.mark.parametrize(
        "declared", [Job, CountedJob, KeptJob, RankedJob, FullJob, pytest.param(NAMED_RANKED, id="named")]
    )
    def test_the_recommended_index_serves_the_claim_order(
        self, broker: Broker, declared: "type | TableSpec", caplog: pytest.LogCaptureFixture
    ) -> None:
        created(broker, declared, group="mail" if declared is FullJob else None).handler(lambda message: None)
        drain(broker)
        assert _warnings(caplog) == []

    @pytest.mark.parametrize("declared", [CountedJob, KeptJob, RankedJob, FullJob])
    def test_a_missing_index_is_a_warning_that_says_what_to_run(
        self, database: Database, broker: Broker, declared: type, caplog: pytest.LogCaptureFixture
    ) -> None:
        broker.queue(declared, "mail" if declared is FullJob else None).handler(lambda message: None)
        for text in broker.ddl(declared).split(";\n"):
            if text and not text.startswith("CREATE INDEX"):
                database.execute(text)
        with caplog.at_level(logging.WARNING, "sqlqueue"):
            drain(broker)
        (warning,) = _warnings(caplog)
        caplog.clear()
        database.execute(warning.partition("run: ")[2])
        drain(broker)
        assert _warnings(caplog) == []

    @pytest.mark.parametrize(
        ("declared", "name"),
        [
            *((LineJob, name) for name in ("lines", "front", "next", "locked")),
            *((FullJob, name) for name in ("levels", "found", "due", "waiting", "given")),
            *((Job, name) for name in ("candidates", "taken", "free")),
        ],
    )
    def test_a_table_may_be_called_as_our_statements_call_their_parts(
        self, broker: Broker, clock: ManualClock, declared: type, name: str
    ) -> None:
        """In lines, with priorities beside rows scheduled ahead, and by advisory lock."""
        spec = attrs.evolve(spec_of(declared), name=name, row_class=None)
        if declared is Job:
            columns = [one for one in spec.columns if one.role is not Role.LEASE]
            spec = attrs.evolve(spec, columns=columns, advisory_lock="{id}")
        queue = created(broker, spec, clock, "mail" if spec.has(Role.GROUP) else None)
        handled: list[Any] = []
        queue.handler(handled.append)
        queue.enqueue("x")
        drain(broker)
        assert handled == ["x"]

    def test_a_table_with_neither_lease_nor_advisory_lock_is_claimed_by_row_lock_or_refused_with_both_mends(
        self, database: Database, broker: Broker
    ) -> None:
        """SUITE 2"""
        spec = spec_of(Job)
        columns = [one for one in spec.columns if one.role is not Role.LEASE]
        queue = created(broker, attrs.evolve(spec, columns=columns))
        handled: list[Any] = []
        queue.handler(handled.append)
        queue.enqueue("x")
        if broker.dialect.capabilities.row_locks:
            drain(broker)
            assert (handled, shown(database, queue, "id")) == (["x"], [])
        else:
            with pytest.raises(Unsupported, match=r"'jobs'.*column\.lease\(\).*advisory_lock='jobs-\{id\}'"):
                Consumer(broker).start()
