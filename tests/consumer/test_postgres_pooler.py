"""Behind a pooler: who needs a session finds out at the start whether it keeps one; leases need none."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool

from sqlqueue import Broker, Unsupported
from sqlqueue.dialect import Pool, PoolSettings
from sqlqueue_postgres import PostgresDialect, sessions
from tests.consumer.helpers import LIMIT, Inbox, jobs, recorded
from tests.support.availability import pgbouncer
from tests.support.database import Database
from tests.support.pgbouncer import running_pgbouncer
from tests.support.pooler import own_pooler
from tests.unit.postgres.helpers import call

Way = Callable[[str, Path], AbstractContextManager[str]]


def by_pgbouncer(**settings: str) -> Way:
    return lambda url, scratch: running_pgbouncer(url, scratch, **settings)


#: Each takes a server's URL and yields one by way of it.
DIRECT: dict[str, Way] = {"no pooler": lambda url, _: nullcontext(url)}
#: Those behind which a session changes between transactions.
MIXING: dict[str, Way] = {
    "own, the last used first": lambda url, _: own_pooler(url),
    "own, in turn": lambda url, _: own_pooler(url, round_robin=True),
    "own, two in turn": lambda url, _: own_pooler(url, size=2, round_robin=True),
    "own, one alone": lambda url, _: own_pooler(url, size=1),
}
REAL_KEEPING: dict[str, Way] = {"PgBouncer, sessions": by_pgbouncer(pool_mode="session")}
REAL_MIXING: dict[str, Way] = {
    "PgBouncer, the last used first": by_pgbouncer(pool_mode="transaction"),
    "PgBouncer, in turn": by_pgbouncer(pool_mode="transaction", server_round_robin="1"),
    "PgBouncer, one alone": by_pgbouncer(pool_mode="transaction", default_pool_size="1"),
}
REAL_STATEMENTS: dict[str, Way] = {"PgBouncer, statements": by_pgbouncer(pool_mode="statement")}
if pgbouncer() is None:
    for real in (REAL_KEEPING, REAL_MIXING, REAL_STATEMENTS):
        real.clear()


def through(*ways: dict[str, Way]) -> pytest.MarkDecorator:
    each = {name: way for some in ways for name, way in some.items()}
    return pytest.mark.parametrize("way", list(each.values()), ids=list(each))


@contextmanager
def pool_of(url: str, **kwargs: Any) -> Iterator["ConnectionPool[Any]"]:
    with ConnectionPool(url, kwargs=kwargs, min_size=2, max_size=4, open=True) as pool:
        yield pool


def opened(source: "str | ConnectionPool[Any]") -> tuple[PostgresDialect, Pool]:
    dialect = PostgresDialect(source)
    return dialect, dialect.open_pool(PoolSettings(size=2))


def use_several(url: str) -> None:
    """Have the pooler connect to its server more than once; which one it hands out is then its choice."""
    with psycopg.connect(url) as one:
        one.execute("SELECT 1")
        with psycopg.connect(url, options="") as other:
            other.execute("SELECT 1")


@through(DIRECT, REAL_KEEPING)
def test_sessions_that_are_kept_pass(postgres_database: Database, tmp_path: Path, way: Way) -> None:
    with way(postgres_database.url, tmp_path) as url:
        dialect, pool = opened(url)
        dialect.check_sessions(pool)
        pool.close()
        with pool_of(url) as users:
            dialect, pool = opened(users)
            dialect.check_sessions(pool)


@through(MIXING, REAL_MIXING, REAL_STATEMENTS)
def test_sessions_that_change_are_refused_with_the_mends(postgres_database: Database, tmp_path: Path, way: Way) -> None:
    with way(postgres_database.url, tmp_path) as url, pool_of(url, prepare_threshold=None) as users:
        dialect, pool = opened(users)
        with pytest.raises(Unsupported, match=r"a pooler .* pool_mode=session, connect .* directly, or .* lease"):
            dialect.check_sessions(pool)


@through({name: way for name, way in {**MIXING, **REAL_MIXING}.items() if "alone" not in name})
def test_sessions_that_change_are_found_out_when_the_pooler_has_several(
    postgres_database: Database, tmp_path: Path, way: Way
) -> None:
    with way(postgres_database.url, tmp_path) as url:
        use_several(url)
        with pool_of(url, prepare_threshold=None) as users:
            dialect, pool = opened(users)
            with pytest.raises(Unsupported, match=r"backend,? \d+"):
                dialect.check_sessions(pool)


@through(DIRECT, MIXING, REAL_MIXING, REAL_KEEPING)
def test_the_check_leaves_a_lent_connection_as_it_came(postgres_database: Database, tmp_path: Path, way: Way) -> None:
    with way(postgres_database.url, tmp_path) as url, pool_of(url, prepare_threshold=0) as users:
        dialect, pool = opened(users)
        try:
            dialect.check_sessions(pool)
        except Unsupported:
            pass
        with users.connection() as one, users.connection() as other:
            for lent in (one, other):
                assert (lent.autocommit, lent.info.transaction_status) == (False, TransactionStatus.IDLE)
                assert lent.prepare_threshold == 0
                found = lent.execute("SELECT count(*) FROM pg_prepared_statements", prepare=False).fetchone()
                lent.rollback()
                assert found == (0,)


@through(MIXING, REAL_MIXING, REAL_STATEMENTS)
def test_a_url_is_refused_before_its_settings_reach_other_sessions(
    postgres_database: Database, tmp_path: Path, way: Way
) -> None:
    with way(postgres_database.url, tmp_path) as url, Broker(url, statement_timeout=7) as broker:
        with pytest.raises(Unsupported, match=r"a pooler .* give the broker a pool of your own"):
            broker.create_tables()
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as other:
            assert other.execute("SHOW statement_timeout").fetchone() == ("0",)


@through(MIXING, REAL_MIXING)
def test_leases_work_each_row_once(postgres_database: Database, tmp_path: Path, way: Way) -> None:
    """PAINS 13"""
    inbox = Inbox()
    with (
        way(postgres_database.url, tmp_path) as url,
        pool_of(url, prepare_threshold=None) as users,
        Broker(users, notify=False, poll_interval=0.05) as broker,
    ):
        queue = jobs(broker)
        queue.handler(workers=2)(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            for number in range(20):
                queue.enqueue(number)
            queue.enqueue_many(range(20, 200))
            recorder.wait_for("acknowledged", count=200)
        assert Counter(inbox.some(200)) == Counter(range(200))
        assert inbox.empty
        assert not recorder.of("trouble", "lost")
    assert postgres_database.execute("SELECT count(*) FROM jobs") == [(0,)]


def test_a_pool_that_prepares_statements_serves_as_well_for_ours_are_never_prepared(
    postgres_database: Database,
) -> None:
    with (
        own_pooler(postgres_database.url, size=2, round_robin=True) as url,
        pool_of(url, prepare_threshold=0) as users,
        Broker(users) as broker,
    ):
        queue = jobs(broker)
        assert sorted(map(queue.enqueue, range(20))) == list(range(1, 21))
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as other:
            for _ in range(2):  # one server, and then the other
                assert other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    assert postgres_database.execute("SELECT count(*) FROM jobs") == [(20,)]


def test_a_connection_at_rest_holds_no_server_of_the_poolers(postgres_database: Database) -> None:
    """Where an answer takes a while, psycopg's pipeline sends a Flush behind its Sync, which nothing answers."""
    slow = call("SELECT pg_sleep(0.05)::text", 1)
    with own_pooler(postgres_database.url, size=1) as url, pool_of(url, prepare_threshold=None) as users:
        _, pool = opened(users)
        with pool.connection() as one, pool.connection() as other:
            assert [one.run([slow]), other.run([slow]), one.run([slow])] == [[[("",)]]] * 3


if pgbouncer() is not None:

    def test_a_pooler_that_keeps_its_only_session_is_refused_in_time(
        postgres_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sessions, "WITHIN", 0.5)
        with running_pgbouncer(postgres_database.url, tmp_path, pool_mode="session", default_pool_size="1") as url:
            dialect, pool = opened(url)
            began = monotonic()
            with pytest.raises(Unsupported, match=r"no second connection .* within 0\.5 s .*default_pool_size"):
                dialect.check_sessions(pool)
            assert monotonic() - began < LIMIT
            pool.close()
