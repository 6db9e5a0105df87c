"""The PostgreSQL of the pages: the trigger works, and what they show is what the broker prints."""

from typing import Any

import pytest

from sqlqueue import Broker, Consumer, SchemaError
from sqlqueue.steps import TaskQueue
from sqlqueue.testing.contract.step_kinds import GREETER
from tests.consumer.test_postgres_steps import PG_TASK
from tests.docs.pages import ROOT, blocks
from tests.docs.test_plain_sql import InvoiceJob, sql_of_the_readme
from tests.support.availability import installed
from tests.support.database import Database


def test_the_readmes_trigger_tells_of_every_insert(postgres_database: Database) -> None:
    """Issue 2: rows of another program are picked up by the trigger."""
    insert, _, trigger = sql_of_the_readme("postgresql")
    with Broker(postgres_database.url) as broker:
        broker.queue(InvoiceJob)
        broker.create_tables()
    listener = postgres_database.connect()
    listener.execute("LISTEN invoice_jobs")
    postgres_database.script(trigger)
    postgres_database.script(insert)
    heard = [(told.channel, told.payload) for told in listener.notifies(timeout=10, stop_after=1)]
    assert heard == [("invoice_jobs", "")]


def test_the_readmes_trigger_is_the_one_that_the_broker_prints() -> None:
    """Without the quotes, and without the DROP for one that was there before."""
    *_, trigger = sql_of_the_readme("postgresql")
    with Broker("postgresql:///unused", notify=True) as broker:
        printed = broker.ddl(InvoiceJob).replace('"', "").replace("$sqlqueue$", "$$")
    lines = printed[printed.index("CREATE OR REPLACE FUNCTION") :].splitlines()
    assert trigger.split() == [word for line in lines if not line.startswith("DROP") for word in line.split()]


def test_the_recommended_ddl_of_the_tables_page_is_what_the_broker_prints() -> None:
    page = ROOT / "docs" / "tables.md"
    names: dict[str, Any] = {"__name__": "__main__"}
    declaration = next(blocks(page, "python")).text.partition("broker = ")[0]
    exec(declaration, names)  # noqa: S102 - our own page
    with Broker("postgresql:///unused", notify=True) as broker:
        assert broker.ddl(names["Mail"]) == next(blocks(page, "sql", "ddl", "postgresql")).text


def test_the_programs_that_join_a_transaction_on_postgresql_run(postgres_database: Database) -> None:
    page = ROOT / "docs" / "producing.md"
    postgres_database.script("CREATE TABLE orders (number text PRIMARY KEY)")
    programs = [block for block in blocks(page, "python", "postgres") if installed(*block.needs)]
    with Broker(postgres_database.url) as broker:
        invoices = broker.queue(InvoiceJob)
        broker.create_tables()
        for block in programs:
            program = block.text.replace("postgresql:///shop", postgres_database.url)
            exec(program, {"invoices": invoices, "Invoice": lambda number: {"number": number}})  # noqa: S102 - our own page
    counted = postgres_database.execute("SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM invoice_jobs)")
    assert counted == [(len(programs), len(programs))]
    assert programs


def test_a_table_that_pg_task_made_goes_on_after_the_statement_of_the_page(postgres_database: Database) -> None:
    (alter,) = blocks(ROOT / "docs" / "tasks-at-work.md", "sql", "alter")
    postgres_database.script(PG_TASK)
    with Broker(postgres_database.url) as broker:
        TaskQueue(broker, [GREETER])
        with pytest.raises(SchemaError) as refused:
            Consumer(broker).start()
        assert str(refused.value).endswith(f"; run: {alter.text.strip()}")
        postgres_database.script(alter.text)
        with Consumer(broker) as consumer:
            assert consumer.health().ok


def test_a_table_whose_lease_is_pg_tasks_own_is_refused(postgres_database: Database) -> None:
    postgres_database.script(PG_TASK)
    postgres_database.script(
        "ALTER TABLE pg_task ADD locked_by uuid, ADD lock_expires_at timestamptz, DROP COLUMN is_running"
    )
    with Broker(postgres_database.url) as broker:
        TaskQueue(broker, [GREETER])
        with pytest.raises(SchemaError, match="there is no column 'is_running'"):
            Consumer(broker).start()
