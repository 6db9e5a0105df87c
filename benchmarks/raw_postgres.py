"""The raw loop on PostgreSQL, with the settings of the pool's connections and the fused statement of a turn."""

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import psycopg

from benchmarks.raw import LEASE, Statements, handle
from sqlqueue.sql import Statement
from sqlqueue_postgres.fuse import Fused, fuse
from sqlqueue_postgres.pool import KEEP_TO_INDEXES, SET_UP, parameters

Rows = Sequence[tuple[Any, ...]]


def connected(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    """A connection with the settings of the pool's."""
    connection = psycopg.connect(url, autocommit=True, **parameters(url))
    psycopg.RawCursor(connection).execute(SET_UP, ("10000",))
    connection.execute(KEEP_TO_INDEXES)
    return connection


class PostgresLoop:
    def __init__(self, url: str, statements: Statements, batch: int) -> None:
        self._first = _fused(statements.claim, durable=False)
        self._turn = _fused(statements.acknowledge, statements.onward)
        assert statements.claim.parameters == ("now_lease", "limit", "expires")
        assert statements.acknowledge.parameters == ("id", "token")
        assert statements.onward.parameters == ("now_lease", "from_id", "limit", "expires")
        self._batch = batch
        self._connection = connected(url)
        self._cursor = psycopg.RawCursor(self._connection)

    def drain(self) -> int:
        """A turn's rows are tagged: -1 of nothing, 0 of its first statement, 1 of its second."""
        now, expires = _moments()
        rows = self._run(self._first.text, (now, self._batch, expires))
        claimed = [(row[1], row[2]) for row in rows if row[0] == 0]
        done = 0
        while claimed:
            for _, payload in claimed:
                handle(payload)
            ids, tokens = [id for id, _ in claimed], [expires] * len(claimed)
            now, expires = _moments()
            rows = self._run(self._turn.text, (ids, tokens, now, min(ids), self._batch, expires))
            claimed = [(row[1], row[2]) for row in rows if row[0] == 1]
            assert len(rows) - len(claimed) == len(ids)
            done += len(ids)
        return done

    def _run(self, sql: bytes, values: tuple[Any, ...]) -> Rows:
        return self._cursor.execute(sql, values, binary=True).fetchall()

    def close(self) -> None:
        self._connection.close()


def _fused(*statements: Statement, durable: bool = True) -> Fused:
    fused = fuse(statements, durable)
    assert fused is not None
    return fused


def _moments() -> tuple[datetime, datetime]:
    now = datetime.now(timezone.utc)
    return now, now + timedelta(seconds=LEASE)
