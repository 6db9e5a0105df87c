"""The recommended table, its indexes and its trigger."""

import threading
from typing import Any

import attrs
import psycopg
import pytest

from sqlqueue.dialect import Pool
from sqlqueue.spec import TableSpec
from sqlqueue_postgres import PostgresDialect
from sqlqueue_postgres.ddl import derived, literal
from tests.support.database import Database
from tests.unit.postgres.helpers import JOBS, ORDERS, call


def run(pool: Pool, statements: tuple[str, ...]) -> None:
    with pool.connection() as connection:
        connection.run([call(statement) for statement in statements])


def notifications(database: Database, channel: str, *statements: str) -> list[str]:
    """The payloads that the statements send, each statement in a transaction of its own."""
    with psycopg.connect(database.url, autocommit=True) as listener:
        listener.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(channel)))
        for statement in statements:
            database.script(statement)
        database.execute("SELECT pg_notify(?, 'end')", channel)
        payloads = []
        for notify in listener.notifies(timeout=5):
            if notify.payload == "end":
                break
            payloads.append(notify.payload)
        return payloads


def test_a_producer_with_plain_sql_names_what_it_knows(
    postgres_database: Database, dialect: PostgresDialect, pool: Pool
) -> None:
    for _ in range(2):
        run(pool, (*dialect.create_table(ORDERS), dialect.create_index(ORDERS, ['"retry_after"'], '"error" IS NULL')))
    postgres_database.execute("""INSERT INTO orders ("Group", payload) VALUES ('eu', '{}')""")
    [row] = postgres_database.execute(
        "SELECT id IS NOT NULL, priority, retry_after <= now(), locked_until, running FROM orders"
    )
    assert row == (True, 0, True, None, False)
    with pytest.raises(psycopg.errors.NotNullViolation):
        postgres_database.execute("""INSERT INTO orders (payload) VALUES ('{}')""")


def test_programs_that_start_together_all_find_the_table(dialect: PostgresDialect, pool: Pool) -> None:
    statements = (*dialect.create_table(ORDERS), dialect.create_index(ORDERS, ["priority"], ""))
    barrier = threading.Barrier(3)
    errors: list[Any] = []

    def create() -> None:
        barrier.wait(10)
        try:
            run(pool, statements)
        except psycopg.Error as error:
            errors.append(error)

    for _ in range(5):
        threads = [threading.Thread(target=create) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)
        run(pool, ("DROP TABLE orders",))
    assert errors == []


def test_indexes_on_other_keys_have_other_names(dialect: PostgresDialect) -> None:
    made = {dialect.create_index(ORDERS, keys, where) for keys in (["a"], ["b"]) for where in ("", "x IS NULL")}
    assert len({text.split(" ON ")[0] for text in made}) == 4
    assert dialect.create_index(ORDERS, ["a"], "") == dialect.create_index(ORDERS, ["a"], "")


@pytest.mark.parametrize("name", ["orders", "Or\"de'rs $sqlqueue$ \\ %s", "é" * 28])
def test_an_insert_notifies_once_for_each_group(
    postgres_database: Database, dialect: PostgresDialect, pool: Pool, name: str
) -> None:
    spec = attrs.evolve(ORDERS, name=name)
    run(pool, dialect.create_table(spec))
    for _ in range(2):
        run(pool, dialect.create_notify(spec))
    insert = f"""INSERT INTO {dialect.table(spec)} ("Group", payload) """
    sent = notifications(
        postgres_database,
        name,
        insert + """SELECT CASE WHEN n < 50 THEN 'eu' ELSE 'us' END, '{}' FROM generate_series(1, 100) AS n""",
        insert + "SELECT 'eu', '{}' WHERE false",
        insert + "VALUES ('stop_worker', '{}')",
        insert + "VALUES (repeat('x', 8000), '{}')",
        f"BEGIN; {insert} VALUES ('eu', '{{}}'); {insert} VALUES ('eu', '{{}}'); COMMIT",
    )
    assert sent == ["eu", "us", "", "", "eu"] or sent == ["us", "eu", "", "", "eu"]


def test_a_table_without_groups_notifies_all_and_a_schema_is_part_of_the_channel(
    postgres_database: Database, dialect: PostgresDialect, pool: Pool
) -> None:
    spec: TableSpec = attrs.evolve(JOBS, schema=postgres_database.name)
    run(pool, dialect.create_table(spec) + dialect.create_notify(spec))
    insert = "INSERT INTO jobs (payload) SELECT 'x' FROM generate_series(1, {}) AS n"
    sent = notifications(postgres_database, spec.full_name, insert.format(10), insert.format(0), insert.format(1))
    assert sent == ["", ""]


def test_names_that_are_too_long_stay_apart() -> None:
    one, two = derived("x" * 70, "sqlqueue_notify"), derived("x" * 70 + "y", "sqlqueue_notify")
    assert [len(one), len(two), one == two] == [63, 63, False]
    assert derived("orders", "idx") == "orders_idx"
    assert (literal("it's"), literal("a\\b")) == ("'it''s'", "E'a\\\\b'")
