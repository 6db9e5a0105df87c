"""The raw loop that holds each row by an advisory lock, on PostgreSQL: a round trip for each of its steps."""

import psycopg

from benchmarks.raw import Crew, handle
from benchmarks.raw_postgres import connected

CANDIDATES = "SELECT id, payload FROM bench_jobs ORDER BY id LIMIT $1"
LOCK = "SELECT pg_try_advisory_lock(hashtextextended('raw-' || $1::text, 0))"
CHECK = "SELECT 1 FROM bench_jobs WHERE id = $1"
DELETE = "DELETE FROM bench_jobs WHERE id = $1"
UNLOCK = "SELECT pg_advisory_unlock(hashtextextended('raw-' || $1::text, 0))"


class PostgresLocker:
    """One of so many that work at once: two candidates for each of them."""

    def __init__(self, url: str, workers: int) -> None:
        self._connection = connected(url)
        self._cursor = psycopg.RawCursor(self._connection)
        self._candidates = 2 * workers

    def drain(self) -> int:
        """Work until there is nothing that the others do not hold."""
        execute, done = self._cursor.execute, 0
        while candidates := execute(CANDIDATES, (self._candidates,), binary=True).fetchall():
            locked = next((row for row in candidates if self._true(LOCK, row[0])), None)
            if locked is None:
                break
            done += self._work(*locked)
        return done

    def _work(self, id: int, payload: bytes) -> bool:
        """Handle the row whose lock was taken, if it is still there, and let go."""
        here = self._cursor.execute(CHECK, (id,), binary=True).fetchone() is not None
        if here:
            handle(payload)
            self._cursor.execute(DELETE, (id,))
        assert self._true(UNLOCK, id)
        return here

    def _true(self, sql: str, id: int) -> bool:
        row = self._cursor.execute(sql, (id,), binary=True).fetchone()
        return row is not None and bool(row[0])

    def close(self) -> None:
        self._connection.close()


def crew(url: str, workers: int) -> Crew:
    return Crew([PostgresLocker(url, workers) for _ in range(workers)])
