"""What errors mean for a loop that could try again."""

import psycopg
import pytest
from psycopg_pool import PoolClosed, PoolTimeout

from sqlqueue.dialect import Pool, PoolSettings, Trouble
from sqlqueue_postgres import PostgresDialect
from tests.support.database import Database
from tests.unit.postgres.helpers import call

LOST = ("08000", "08001", "08003", "08004", "08006", "08007", "57P01", "57P02", "57P03", "53300")


@pytest.mark.parametrize(
    ("state", "trouble"),
    [
        *[(state, Trouble.LOST) for state in LOST],
        *[(state, Trouble.TRANSIENT) for state in ("40001", "40P01", "55P03", "57014", "53100")],
        *[(state, Trouble.PERMANENT) for state in ("42P01", "42501", "28P01", "3D000", "23505")],
    ],
)
def test_a_state_decides(dialect: PostgresDialect, state: str, trouble: Trouble) -> None:
    assert dialect.classify(psycopg.errors.lookup(state)("x")) is trouble


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (PoolTimeout("couldn't get a connection"), Trouble.EXHAUSTED),
        (PoolClosed("closed"), Trouble.CLOSED),
        (psycopg.OperationalError("the connection is lost"), Trouble.LOST),
        (psycopg.OperationalError('… failed: FATAL:  password authentication failed for user "x"'), Trouble.PERMANENT),
        (psycopg.OperationalError("… failed: FATAL:  the database system is starting up"), Trouble.LOST),
        (psycopg.OperationalError("… failed: FATAL:  sorry, too many clients already"), Trouble.LOST),
        (psycopg.OperationalError("… failed: fe_sendauth: no password supplied"), Trouble.PERMANENT),
        (BrokenPipeError(), Trouble.LOST),
        (KeyError("x"), Trouble.PERMANENT),
    ],
)
def test_an_error_without_a_state_is_told_by_its_kind(
    dialect: PostgresDialect, error: Exception, trouble: Trouble
) -> None:
    assert dialect.classify(error) is trouble


def test_a_refused_login_fails_at_once_and_a_server_that_is_away_is_waited_for(postgres_database: Database) -> None:
    rest = postgres_database.url.partition("?")[2]
    for url, trouble in (
        (f"postgresql:///nowhere?{rest}", Trouble.PERMANENT),
        (f"{postgres_database.url}&user=nobody", Trouble.PERMANENT),
        ("postgresql://127.0.0.1:1/x", Trouble.LOST),
        ("postgresql:///x?host=/nowhere", Trouble.LOST),
    ):
        dialect = PostgresDialect(url)
        with pytest.raises(psycopg.OperationalError) as caught:
            dialect.open_pool(PoolSettings()).probe()
        assert (url, dialect.classify(caught.value)) == (url, trouble)


def test_a_terminated_backend_is_a_lost_connection(
    postgres_database: Database, dialect: PostgresDialect, pool: Pool
) -> None:
    with pool.connection() as connection:
        pid = connection.driver.info.backend_pid
        postgres_database.execute("SELECT pg_terminate_backend(?, 2000)", pid)
        for _ in range(2):
            with pytest.raises(psycopg.OperationalError) as caught:
                connection.run([call("SELECT 1", 1)])
            assert dialect.classify(caught.value) is Trouble.LOST
