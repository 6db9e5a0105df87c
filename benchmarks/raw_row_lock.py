"""Raw loops that hold each row by a row lock, one row at a time, on PostgreSQL."""

from collections.abc import Callable
from typing import Any

import psycopg

from benchmarks.raw import Crew, Loop, handle
from benchmarks.raw_postgres import connected

LOCK = "SELECT id, payload FROM bench_jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
DELETE = "DELETE FROM bench_jobs WHERE id = $1"
TAKE = """
DELETE FROM bench_jobs
WHERE id = (SELECT id FROM bench_jobs ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
RETURNING id, payload
"""

#: Makes a loop on the connection to a URL.
Make = Callable[[str], Loop]


class Naive:
    """What most would write: a transaction of four statements, each a round trip."""

    def __init__(self, url: str) -> None:
        self._connection = connected(url)
        self._cursor = psycopg.RawCursor(self._connection)

    def drain(self) -> int:
        done = 0
        while self._one():
            done += 1
        return done

    def _one(self) -> bool:
        execute = self._cursor.execute
        execute("BEGIN")
        row = execute(LOCK, binary=True).fetchone()
        if row is not None:
            handle(row[1])
            execute(DELETE, (row[0],))
        execute("COMMIT")
        return row is not None

    def close(self) -> None:
        self._connection.close()


class Fused:
    """The best that one could: the claim deletes in the transaction that it holds, and goes out together with the
    COMMIT of the row before."""

    def __init__(self, url: str) -> None:
        self._connection = connected(url)
        self._ends, self._takes = (psycopg.RawCursor(self._connection) for _ in range(2))

    def drain(self) -> int:
        done = 0
        row = self._turn("BEGIN")
        while row is not None:
            handle(row[1])
            done += 1
            row = self._turn("COMMIT", "BEGIN")
        self._ends.execute("COMMIT")
        return done

    def _turn(self, *ends: str) -> tuple[Any, ...] | None:
        with self._connection.pipeline():
            for statement in ends:
                self._ends.execute(statement)
            self._takes.execute(TAKE, binary=True)
        return self._takes.fetchone()

    def close(self) -> None:
        self._connection.close()


def crew(make: Make, url: str, workers: int) -> Crew:
    return Crew([make(url) for _ in range(workers)])
