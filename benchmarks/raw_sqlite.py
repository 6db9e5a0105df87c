"""The raw loop on SQLite, with the settings of the pool's connections: WAL, and each settlement synced to the disk."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from benchmarks.raw import LEASE, Statements, handle, text
from sqlqueue_sqlite.prepared import prepare


def connected(path: str) -> sqlite3.Connection:
    """A connection with the settings of the pool's, for any thread."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=10, check_same_thread=False)
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "temp_store = MEMORY"):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


class SQLiteLoop:
    def __init__(self, path: str, statements: Statements, batch: int) -> None:
        self._claim, self._onward = prepare(statements.claim), prepare(statements.onward)
        self._acknowledge = prepare(statements.acknowledge).text
        assert prepare(statements.acknowledge).names == ("id", "token")
        self._batch = batch
        self._connection = connected(path)

    def drain(self) -> int:
        done, token = 0, ""
        rows: list[tuple[Any, ...]] = []
        while True:
            rows, token = self._turn([(row[0], token) for row in rows])
            if not rows:
                return done
            for row in rows:
                handle(row[1])
            done += len(rows)

    def _turn(self, finished: Sequence[tuple[Any, str]]) -> tuple[list[tuple[Any, ...]], str]:
        now = datetime.now(timezone.utc)
        expires = text(now + timedelta(seconds=LEASE))
        claim = self._onward if finished else self._claim
        first = min(finished)[0] if finished else None
        values = {"now_lease": text(now), "from_id": first, "limit": self._batch, "expires": expires}
        execute = self._connection.execute
        execute("BEGIN IMMEDIATE")
        settled = 0
        for one in finished:
            settled += len(execute(self._acknowledge, one).fetchall())
        assert settled == len(finished)
        rows = execute(claim.text, tuple([values[name] for name in claim.names])).fetchall()
        execute("COMMIT")
        return rows, expires

    def close(self) -> None:
        self._connection.close()
