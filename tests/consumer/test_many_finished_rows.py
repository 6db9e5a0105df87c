"""Two hundred thousand finished rows make no slow start: nobody reads them, and nobody counts them."""

from sqlqueue import Broker, Consumer
from tests.consumer.helpers import HOUR, LIMIT, Inbox, insert, jobs, wait_until
from tests.support.database import Database

MANY = 200_000

SERIES = f"""
WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < {MANY})
INSERT INTO jobs (payload, attempt, error) SELECT '1', 0, 'spent' FROM series
"""

READ = """
SELECT seq_tup_read + coalesce(idx_tup_fetch, 0), n_tup_del FROM pg_stat_user_tables
WHERE relname = 'jobs' AND schemaname = ?
"""

#: A consumer that counts them, or looks at each, reads as many as there are, in several steps each on SQLite.
FEW = MANY // 100


def start_and_handle_one(broker: Broker, database: Database) -> None:
    inbox = Inbox()
    broker.queues[0].handler(inbox.handle)
    insert(database, 7)
    with Consumer(broker):
        assert inbox.next(LIMIT) == 7


def test_on_postgres_almost_no_row_is_read(postgres_database: Database) -> None:
    """PAINS 24"""
    with Broker(postgres_database.url, poll_interval=HOUR) as broker:
        jobs(broker)
        postgres_database.execute(SERIES)
        [(before, _)] = postgres_database.execute(READ, postgres_database.name)
        start_and_handle_one(broker, postgres_database)
    # A backend tells what it did when it ends.
    wait_until(lambda: postgres_database.execute(READ, postgres_database.name)[0][1] == 1)
    [(after, _)] = postgres_database.execute(READ, postgres_database.name)
    assert after - before < FEW


def test_on_sqlite_almost_no_step_is_made(sqlite_database: Database) -> None:
    """PAINS 24"""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 100
        return 0

    with Broker(sqlite_database.url, poll_interval=HOUR, pool_size=1) as broker:
        jobs(broker)
        sqlite_database.execute(SERIES)
        with broker.pool.connection() as connection:
            connection.driver.set_progress_handler(count, 100)
        start_and_handle_one(broker, sqlite_database)
    assert 0 < steps < 5 * FEW
