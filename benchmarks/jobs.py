"""The queues that the benchmarks work, on the table of the quick start and its like; a message of 100 bytes of JSON."""

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import attrs

from sqlqueue import Broker, Consumer, Queue, column, table
from sqlqueue.spec import TableSpec
from tests.support.database import Database

MESSAGE = {
    "number": "A-17",
    "customer": "Jane Doe",
    "lines": [1, 2, 3],
    "total": 1999,
    "note": "by express, ring twice",
}
PAYLOAD = json.dumps(MESSAGE, separators=(",", ":")).encode()
assert len(PAYLOAD) == 100

#: Seconds that a round may take before something is wrong.
LIMIT = 120.0


@table("bench_jobs")
class Job:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()


@table("bench_jobs")
class LockedJob:
    """Held by a row lock."""

    id: int = column.id(generated=True)
    payload: bytes = column.payload()


@table("bench_jobs", advisory_lock="bench-{id}")
class KeyedJob:
    """Held by an advisory lock, each row by its own."""

    id: int = column.id(generated=True)
    payload: bytes = column.payload()


@table("bench_lines")
class LineJob:
    """One row of an account is in work at a time, in order."""

    id: int = column.id(generated=True)
    account: str = column.partition_key(fifo=True)
    locked_until: datetime | None = column.lease()
    payload: bytes = column.payload()


@table("bench_lines")
class LockedLineJob:
    """The same, held by a row lock."""

    id: int = column.id(generated=True)
    account: str = column.partition_key(fifo=True)
    payload: bytes = column.payload()


def nothing(message: Any) -> None:
    """The handler, here and in the raw loops."""


def empty(database: Database, table: str = "bench_jobs") -> None:
    """An empty table, and on PostgreSQL an index without dead rows of the round before."""
    database.execute(f"DELETE FROM {table}" if database.kind == "sqlite" else f"TRUNCATE {table}")


def fill(database: Database, connection: Any, rows: int) -> None:
    """Insert and commit so many rows, as another program does."""
    if database.kind == "sqlite":
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO bench_jobs (payload) VALUES (?)", [(PAYLOAD,)] * rows)
        connection.execute("COMMIT")
    else:
        sql = "INSERT INTO bench_jobs (payload) SELECT %s::bytea FROM generate_series(1, %s)"
        connection.execute(sql, (PAYLOAD, rows))


def fill_lines(database: Database, connection: Any, accounts: Iterable[str], table: str = "bench_lines") -> None:
    """Insert and commit a row for each of the accounts, in their order."""
    rows = ((account, PAYLOAD) for account in accounts)
    if database.kind == "sqlite":
        connection.execute("BEGIN")
        connection.executemany(f"INSERT INTO {table} (account, payload) VALUES (?, ?)", rows)
        connection.execute("COMMIT")
    else:
        with connection.cursor().copy(f"COPY {table} (account, payload) FROM STDIN") as writing:
            for row in rows:
                writing.write_row(row)


@contextmanager
def queue_on(database: Database, declared: type | TableSpec = Job, **settings: Any) -> Iterator[Queue]:
    """The queue of a broker that polls once a minute, its table made; both are closed afterwards."""
    with Broker(database.url, **{"poll_interval": 60, **settings}) as broker:
        queue = broker.queue(declared)
        broker.create_tables()
        yield queue


@attrs.define
class Worker:
    """A consumer of the queue whose rows can be counted, without an observer that would cost time for each."""

    queue: Queue
    _consumer: Consumer | None = None

    def start(self) -> None:
        """Start, and settle one row; then it is idle, with its statements prepared."""
        self._consumer = Consumer(self.queue.broker)
        self._consumer.start()
        self.queue.enqueue(MESSAGE, key="first" if self.queue.spec.fifo_column else None)
        self.wait(1)
        time.sleep(0.02)  # its claim on the empty table that follows

    @property
    def settled(self) -> int:
        assert self._consumer is not None
        return self._consumer.health().queues[0].settled

    def wait(self, rows: int) -> None:
        """Wait until so many rows are settled since the start."""
        ends = time.monotonic() + LIMIT
        while self.settled < rows:
            if time.monotonic() > ends:
                raise TimeoutError(f"{self.settled} of {rows} rows settled after {LIMIT} s")
            time.sleep(0.003)

    def stop(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.stop()
