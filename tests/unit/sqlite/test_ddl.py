"""The recommended table."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlqueue import column
from sqlqueue.dialect import Connection
from sqlqueue.spec import spec_of
from sqlqueue.sql import Call, Statement
from sqlqueue.table import table
from sqlqueue_sqlite.dialect import SQLiteDialect
from tests.support.database import Database


@table('every "role"', schema="main")
class Every:
    id: int = column.id(generated=True)
    queue: str = column.group(name="order")
    weight: int = column.priority()
    key: str | None = column.partition_key()
    due: datetime = column.retry_after()
    tries: int = column.attempt()
    done_at: datetime | None = column.processed_at()
    locked_until: datetime | None = column.lease()
    headers: dict[str, str] | None = column.headers()
    payload: bytes | None = column.payload()
    error: str | None = column.error()
    is_running: bool = column.running()
    price: Decimal | None = None
    day: date | None = None
    ratio: float | None = None
    anything: Any = None
    tags: list[str] | None = None


EVERY = """\
CREATE TABLE IF NOT EXISTS "main"."every ""role\""" (
  "id" INTEGER PRIMARY KEY AUTOINCREMENT,
  "order" TEXT NOT NULL,
  "weight" INTEGER NOT NULL DEFAULT 0,
  "key" TEXT,
  "due" TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now')),
  "tries" INTEGER NOT NULL DEFAULT 0,
  "done_at" TEXT,
  "locked_until" TEXT,
  "headers" TEXT,
  "payload" BLOB,
  "error" TEXT,
  "is_running" INTEGER NOT NULL DEFAULT 0,
  "price" TEXT,
  "day" TEXT,
  "ratio" REAL,
  "anything" BLOB,
  "tags" TEXT
)"""


def create(connection: Connection, text: str) -> None:
    connection.run([Call(Statement(name="create", text=text, parameters=()))])


def test_every_role_has_its_type_and_default(dialect: SQLiteDialect) -> None:
    assert dialect.create_table(spec_of(Every)) == (EVERY,)


def test_a_plain_insert_needs_the_group_only(
    connection: Connection, dialect: SQLiteDialect, sqlite_database: Database
) -> None:
    create(connection, dialect.create_table(spec_of(Every))[0])
    create(connection, dialect.create_table(spec_of(Every))[0])  # IF NOT EXISTS
    sqlite_database.execute('INSERT INTO "every ""role""" ("order") VALUES (?)', "mail")
    rows = sqlite_database.execute(
        'SELECT id, weight, tries, is_running, due <= CURRENT_TIMESTAMP || \'.999\' FROM "every ""role"""'
    )
    assert rows == [(1, 0, 0, 0, 1)]


def test_what_is_created_fits(connection: Connection, dialect: SQLiteDialect) -> None:
    spec = spec_of(Every)
    create(connection, dialect.create_table(spec)[0])
    facts = dialect.describe(connection, spec)
    assert facts is not None
    assert [dialect.misfit(declared, facts[declared.name]) for declared in spec.columns] == [None] * len(spec.columns)


def test_ids_are_not_given_out_again(connection: Connection, dialect: SQLiteDialect) -> None:
    insert = "INSERT INTO jobs (payload) VALUES (x'') RETURNING id"
    assert connection.driver.execute(insert).fetchall() == [(1,)]
    connection.driver.execute("DELETE FROM jobs")
    assert connection.driver.execute(insert).fetchall() == [(2,)]


def test_ids_of_other_types_are_keys(dialect: SQLiteDialect) -> None:
    @table("t")
    class ByUUID:
        id: UUID = column.id()
        due: int = column.retry_after()
        locked_until: float | None = column.lease()

    (text,) = dialect.create_table(spec_of(ByUUID))
    assert '"id" TEXT NOT NULL PRIMARY KEY' in text
    assert "\"due\" INTEGER NOT NULL DEFAULT (CAST(strftime('%s', 'now') AS INTEGER))" in text
    assert '"locked_until" REAL' in text


def test_an_index_is_created_beside_its_table(connection: Connection, dialect: SQLiteDialect) -> None:
    spec = spec_of(Every)
    create(connection, dialect.create_table(spec)[0])
    whole = dialect.create_index(spec, ['"order"', "COALESCE(\"due\", '')", '"id"'], "")
    partial = dialect.create_index(spec, ['"order"', '"id"'], '"error" IS NULL')
    for text in (whole, partial, whole):
        create(connection, text)
    assert partial.startswith('CREATE INDEX IF NOT EXISTS "main"."every ""role""_claim_')
    assert partial.endswith('ON "every ""role""" ("order", "id")\nWHERE "error" IS NULL')
    names = connection.driver.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
    assert len(names) == 2
