"""The SQL of the README, run as a program without sqlqueue would run it."""

from datetime import datetime

from sqlqueue import Broker, column, table
from sqlqueue.testing import drain
from tests.docs.pages import ROOT, blocks
from tests.support.database import Database


@table("invoice_jobs")
class InvoiceJob:
    """The table of the README."""

    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()


def sql_of_the_readme(kind: str) -> list[str]:
    return [block.text for block in blocks(ROOT / "README.md", "sql", kind)]


def test_rows_of_the_readmes_sql_are_rendered(database: Database) -> None:
    kind = {"sqlite": "sqlite", "postgres": "postgresql"}[database.kind]
    with Broker(database.url) as broker:
        rendered = []
        broker.queue(InvoiceJob).handler(lambda invoice: rendered.append(invoice["number"]))
        broker.create_tables()
        for sql in sql_of_the_readme(kind):
            database.script(sql)
        drain(broker)
    assert rendered == (["A-18"] if kind == "sqlite" else ["A-18", "A-19"])
