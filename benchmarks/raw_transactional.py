"""Raw loops that write a note and delete the row in one transaction, as a transactional handler does."""

import sqlite3
import threading
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from benchmarks.raw import Crew, handle
from tests.support.database import Database

if TYPE_CHECKING:
    import psycopg

NOTES = "CREATE TABLE IF NOT EXISTS bench_notes (job bigint NOT NULL)"
EMPTY_NOTES = "DELETE FROM bench_notes"


class PostgresNotes:
    """BEGIN; SELECT … FOR UPDATE SKIP LOCKED; INSERT; DELETE; COMMIT: a round trip each."""

    def __init__(self, url: str) -> None:
        from benchmarks.raw_postgres import connected

        self._connection: psycopg.Connection[Any] = connected(url)

    def drain(self) -> int:
        done = 0
        while self._one():
            done += 1
        return done

    def _one(self) -> bool:
        from benchmarks.raw_row_lock import LOCK

        execute = self._connection.execute
        execute("BEGIN")
        row = execute(LOCK, binary=True).fetchone()
        if row is not None:
            handle(row[1])
            execute("INSERT INTO bench_notes VALUES (%s)", (row[0],))
            execute("DELETE FROM bench_jobs WHERE id = %s", (row[0],))
        execute("COMMIT")
        return row is not None

    def close(self) -> None:
        self._connection.close()


class SQLiteNotes:
    """BEGIN IMMEDIATE; SELECT; INSERT; DELETE; COMMIT. `gate` is for writers, who else would sleep and try again."""

    def __init__(self, path: str, gate: AbstractContextManager[object]) -> None:
        from benchmarks.raw_sqlite import connected

        self._connection: sqlite3.Connection = connected(path)
        self._gate = gate

    def drain(self) -> int:
        done = 0
        while self._one():
            done += 1
        return done

    def _one(self) -> bool:
        execute = self._connection.execute
        with self._gate:
            execute("BEGIN IMMEDIATE")
            row = execute("SELECT id, payload FROM bench_jobs ORDER BY id LIMIT 1").fetchone()
            if row is not None:
                handle(row[1])
                execute("INSERT INTO bench_notes VALUES (?)", (row[0],))
                execute("DELETE FROM bench_jobs WHERE id = ?", (row[0],))
            execute("COMMIT")
        return row is not None

    def close(self) -> None:
        self._connection.close()


def crew(database: Database, workers: int) -> Crew:
    if database.kind == "sqlite":
        gate = threading.Lock()
        return Crew([SQLiteNotes(database.name, gate) for _ in range(workers)])
    return Crew([PostgresNotes(database.url) for _ in range(workers)])
