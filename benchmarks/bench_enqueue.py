"""Enqueue beside what one would write by hand, round by round in turn: one row a commit, and many at once."""

import json
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.jobs import MESSAGE, empty, queue_on
from benchmarks.report import Report, Rounds
from sqlqueue import Queue
from tests.support.database import Database

ROUNDS = 5
SINGLE, MANY = 800, 20_000

TITLE = "enqueue: rows a second from one thread, medians of interleaved rounds"
HEADING = ("", "call", "by hand", "by hand rows/s", "sqlqueue rows/s", "ratio")

Write = Callable[[int], None]


def encoded() -> bytes:
    return json.dumps(MESSAGE, separators=(",", ":")).encode()


def by_hand(database: Database, *, many: bool) -> tuple[str, Any, Write]:
    """What it is called, its connection, and the function that writes so many rows."""
    if database.kind == "sqlite":
        connection = database.connect()
        connection.execute("PRAGMA synchronous = FULL")
        return ("executemany", connection, partial(executemany, connection)) if many else _sqlite_single(connection)
    import psycopg

    connection = psycopg.connect(database.url, autocommit=True)
    if many:
        return "COPY", connection, partial(copy, connection)
    sql = "INSERT INTO bench_jobs (locked_until, payload) VALUES (NULL, $1) RETURNING id"
    return "INSERT", connection, partial(single, psycopg.RawCursor(connection), sql)


def _sqlite_single(connection: sqlite3.Connection) -> tuple[str, Any, Write]:
    sql = "INSERT INTO bench_jobs (locked_until, payload) VALUES (NULL, ?) RETURNING id"
    return "INSERT", connection, partial(single, connection.cursor(), sql)


def single(cursor: Any, sql: str, rows: int) -> None:
    for _ in range(rows):
        cursor.execute(sql, (encoded(),))
        cursor.fetchall()


def executemany(connection: sqlite3.Connection, rows: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    sql = "INSERT INTO bench_jobs (locked_until, payload) VALUES (NULL, ?)"
    connection.executemany(sql, [(encoded(),) for _ in range(rows)])
    connection.execute("COMMIT")


def copy(connection: Any, rows: int) -> None:
    with connection.cursor().copy("COPY bench_jobs (locked_until, payload) FROM STDIN") as writing:
        for _ in range(rows):
            writing.write_row((None, encoded()))


def enqueue(queue: Queue, rows: int) -> None:
    for _ in range(rows):
        queue.enqueue(MESSAGE)


def enqueue_many(queue: Queue, rows: int) -> None:
    assert queue.enqueue_many(MESSAGE for _ in range(rows)) == rows


def timed(rounds: Rounds, write: Write, rows: int) -> None:
    began, processor = time.perf_counter(), time.process_time()
    write(rows)
    rounds.add(time.perf_counter() - began, time.process_time() - processor)


def run(benchmark: Any, database: Database, report: Report, rows: int, *, many: bool) -> None:
    benchmark.group = f"enqueue, {database.label}"
    raw, ours = Rounds(), Rounds()
    with queue_on(database) as queue:
        call = enqueue_many if many else enqueue
        what, connection, write = by_hand(database, many=many)

        def set_up() -> None:
            empty(database)
            timed(raw, write, rows)
            empty(database)

        try:
            benchmark.pedantic(
                timed, args=(ours, partial(call, queue), rows), setup=set_up, rounds=ROUNDS, warmup_rounds=1
            )
        finally:
            connection.close()
    raw_rate, rate = raw.rate(rows), ours.rate(rows)
    ratio = rate / raw_rate
    benchmark.extra_info.update(rows=rows, raw_rows_per_second=raw_rate, rows_per_second=rate, ratio=ratio)
    cells = (call.__name__, what, f"{raw_rate:,.0f}", f"{rate:,.0f}", f"{ratio:.2f}")
    report.add(TITLE, HEADING, (database.label, *cells))


def test_enqueue_one_beside_a_plain_insert(
    benchmark: Any, database: Database, report: Report, scaled: Callable[[int], int]
) -> None:
    run(benchmark, database, report, scaled(SINGLE), many=False)


def test_enqueue_many_beside_the_fastest_bulk_insert(
    benchmark: Any, database: Database, report: Report, scaled: Callable[[int], int]
) -> None:
    run(benchmark, database, report, scaled(MANY), many=True)
