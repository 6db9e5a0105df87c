"""Several calls as one statement."""

from datetime import datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest

from sqlqueue.dialect import Pool
from sqlqueue.sql import Call
from sqlqueue_postgres import connection as module
from sqlqueue_postgres.fuse import fuse
from tests.support.database import Database
from tests.unit.postgres.helpers import ACKNOWLEDGE, CLAIM, SCHEMA, call, compose

NOW = datetime(2024, 5, 6, tzinfo=timezone.utc)
LATER = NOW + timedelta(seconds=30)

ACK = compose(ACKNOWLEDGE, 1, ("id", "token"), "acknowledge")
TAKE = compose(CLAIM, 4, (), "claim")


def turn() -> list[Call]:
    return [
        Call(ACK, {"id": [1, 2, 3], "token": [LATER, LATER, NOW]}),
        Call(TAKE, {"now": NOW, "limit": 2, "expiry": LATER}),
        call("UPDATE jobs SET attempt = 7 WHERE id = :id RETURNING id", 1, id=9),
    ]


def prepare(database: Database) -> None:
    database.script(SCHEMA)
    database.execute(
        "INSERT INTO jobs (id, payload, locked_until) SELECT n, 'x', CASE WHEN n < 4 THEN ?::timestamptz END "
        "FROM generate_series(1, 9) AS n",
        LATER,
    )


def outcome(database: Database, pool: Pool, *, durable: bool = True) -> tuple[list[list[Any]], Any]:
    prepare(database)
    with pool.connection() as connection:
        results = connection.run(turn(), durable=durable)
    left = database.execute("SELECT id, locked_until, attempt FROM jobs ORDER BY id")
    database.execute("DROP TABLE jobs")
    return [sorted(rows) for rows in results], left


def test_a_fused_run_does_what_a_pipeline_does(
    postgres_database: Database, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused = outcome(postgres_database, pool)
    relaxed = outcome(postgres_database, pool, durable=False)
    monkeypatch.setattr(module, "fuse", lambda *_: None)
    piped = outcome(postgres_database, pool)
    piped_relaxed = outcome(postgres_database, pool, durable=False)
    monkeypatch.setattr(module.Transport, "pipelines", False)
    stepwise = outcome(postgres_database, pool)
    assert fused[0] == [[(1,), (2,)], [(4, 1, b"x", ":now $1"), (5, 1, b"x", ":now $1")], [(9,)]]
    assert fused == relaxed == piped == piped_relaxed == stepwise


def test_the_server_is_asked_once(postgres_database: Database, pool: Pool) -> None:
    prepare(postgres_database)
    with pool.connection() as connection:
        connection.run(turn(), durable=False)
        [(query,)] = postgres_database.execute(
            "SELECT query FROM pg_stat_activity WHERE pid = ?", connection.driver.info.backend_pid
        )
    assert query.startswith("-- sqlqueue: acknowledge + claim + test\nWITH part_0")


def test_a_commit_that_need_not_be_durable_is_not_and_the_next_one_is(pool: Pool) -> None:
    show = "SELECT current_setting('synchronous_commit')"
    with pool.connection() as connection:
        connection.run([call("SELECT pg_notify('x', '')::text", 1)], durable=False)
        assert connection.run([call(show, 1)]) == [[("on",)]]


@pytest.mark.parametrize(
    "calls",
    [
        [call("SELECT 1", 1), call("SELECT 'text'::text", 1), call("SELECT true", 1)],
        [call("SELECT 1", 1), call("CREATE TABLE extra (id int)")],
        [call("SELECT 1", 1), call("SHOW server_encoding", 1)],
    ],
)
def test_what_does_not_fit_into_one_runs_as_one_transaction(pool: Pool, calls: list[Call]) -> None:
    with pool.connection() as connection:
        for _ in range(2):
            first, second = connection.run(calls)[:2]
            assert (first, len(second)) == ([(1,)], calls[1].statement.width)
            connection.run([call("DROP TABLE IF EXISTS extra")])
    fused = fuse(tuple(each.statement for each in calls), True)
    assert fused is None or not fused.serves


def test_a_failing_call_undoes_the_others(postgres_database: Database, pool: Pool) -> None:
    prepare(postgres_database)
    delete = call("DELETE FROM jobs WHERE id = :id RETURNING id", 1, id=1)
    fail = call("SELECT 1 / (:id - 1)", 1, id=1)
    for last in (fail, call("SELECT 1 / 0")):
        with pool.connection() as connection:
            with pytest.raises(psycopg.errors.DivisionByZero):
                connection.run([delete, last])
            assert connection.run([call("SELECT count(*) FROM jobs", 1)]) == [[(9,)]]


def test_a_statement_of_its_own_fault_says_so(pool: Pool) -> None:
    with pool.connection() as connection, pytest.raises(psycopg.errors.SyntaxError):
        connection.run([call("SELECT 1", 1), call("SELEKT 1", 1)])


def test_a_changed_column_type_is_survived(postgres_database: Database, pool: Pool) -> None:
    prepare(postgres_database)
    look = [call("SELECT id, attempt FROM jobs WHERE id = 1", 2), call("SELECT 5::bigint", 1)]
    with pool.connection() as connection:
        for _ in range(10):
            connection.run(look)
        postgres_database.execute("ALTER TABLE jobs ALTER attempt TYPE bigint")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="cached plan"):
            connection.run(look)
    with pool.connection() as connection:
        assert connection.run(look) == [[(1, 0)], [(5,)]]
    fused = fuse(tuple(each.statement for each in look), True)
    assert fused is not None
    assert fused.serves


def test_types_need_not_agree_with_the_widest(pool: Pool) -> None:
    calls = [call("SELECT 5::bigint", 1), call("SELECT 'a'::bytea, true", 2), call("SELECT 6::bigint", 1)]
    with pool.connection() as connection:
        for durable in (True, False):
            assert connection.run(calls, durable=durable) == [[(5,)], [(b"a", True)], [(6,)]]
    fused = fuse(tuple(each.statement for each in calls), True)
    assert fused is not None
    assert fused.serves
