"""FIFO: what a claim costs beside a key with a large backlog, and how fast many lines are worked off."""

from collections.abc import Callable
from typing import Any

from benchmarks.heads import BY_LEASE, BY_ROW_LOCK, How, tables
from benchmarks.jobs import LineJob, Worker, nothing, queue_on
from benchmarks.race import MEASURED, Jobs, Lines, Other, Ours, race
from benchmarks.report import Report
from tests.support.database import Database

#: Rows of each table; three fifths of them are one key's where one is busy.
ROWS = 500_000

ROUNDS = 100

#: How many times a claim may take what it takes where no key is busy.
AT_MOST = 3.0

CLAIM = "FIFO claim: milliseconds, medians of interleaved claims, begun at the busy key with 3/5 of the rows"
CLAIM_HEADING = (
    "",
    "held by",
    "heads",
    "rows",
    "100 rows a key",
    "1 row a key",
    "busy, head free",
    "busy, head in work",
    "times",
    "at most",
)

WORKERS, LINES, ROWS_OF_A_LINE = 16, 1_000, 20

DRAIN = "FIFO drain: 16 workers, lease; rows a second, medians of interleaved rounds; 20 rows of each key"
DRAIN_HEADING = ("", "keys", *MEASURED)


def run(benchmark: Any, database: Database, report: Report, how: How, rows: int) -> None:
    benchmark.group = f"FIFO claim, {database.label}"
    with tables(database, how, rows) as made:
        made.warm_up()
        benchmark.pedantic(made.claim, setup=made.set_up, rounds=ROUNDS)
    even, single, free, in_work = made.milliseconds
    times = max(free, in_work) / min(even, single)
    benchmark.extra_info.update(
        rows=rows, heads=how.heads, even_ms=even, single_ms=single, free_ms=free, in_work_ms=in_work, times=times
    )
    cells = [f"{value:.2f}" for value in (even, single, free, in_work, times)]
    report.add(CLAIM, CLAIM_HEADING, (database.label, how.held_by, how.heads, f"{rows:,}", *cells, AT_MOST))
    assert times <= AT_MOST


def test_a_claim_by_lease_costs_no_more_beside_a_busy_key(
    benchmark: Any, database: Database, report: Report, scaled: Callable[[int], int]
) -> None:
    run(benchmark, database, report, BY_LEASE, scaled(ROWS))


def test_a_claim_by_row_lock_costs_no_more_beside_a_busy_key(
    benchmark: Any, postgres_database: Database, report: Report, scaled: Callable[[int], int]
) -> None:
    run(benchmark, postgres_database, report, BY_ROW_LOCK, scaled(ROWS))


def test_the_drain_of_many_lines_beside_the_plain_lease_drain(
    benchmark: Any, database: Database, report: Report, scaled: Callable[[int], int]
) -> None:
    benchmark.group = f"FIFO drain, {database.label}"
    keys = scaled(LINES)
    rows = keys * ROWS_OF_A_LINE
    jobs, lines = Jobs(database, rows, database.connect()), Lines(database, rows, keys, database.connect())
    with queue_on(database) as plain, queue_on(database, LineJob) as queue:
        for one in (plain, queue):
            one.handler(workers=WORKERS)(nothing)
        other = Other("plain lease", Ours(jobs, Worker(plain)))
        with race(rows, Ours(lines, Worker(queue)), [other]) as raced:
            raced.run(benchmark)
    for cells in raced.cells():
        report.add(DRAIN, DRAIN_HEADING, (database.label, f"{keys:,}", *cells))
