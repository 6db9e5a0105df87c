"""Two processes work FIFO lines off and are killed in turn: the order of each line is kept, and nothing is lost."""

import signal
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import attrs
import pytest

from sqlqueue import Broker
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.testing.contract import created
from sqlqueue.testing.contract.line_tables import LineJob, by_row_lock
from tests.consumer.helpers import wait_until
from tests.support.children import Child, child
from tests.support.database import Database

WORKER = "tests.crash.programs.line_worker"

KEYS = 8
ROWS = 400
KILLS = 4

#: Seconds. A lease is long beside a stall of a busy machine, for a row that is taken from a live process comes again
#: too.
LEASE, WORK = 2.0, 0.004

FILL = "INSERT INTO line_jobs (account, attempt, payload) VALUES (?, 0, '1')"
LEFT = "SELECT count(*) FROM line_jobs"


@attrs.frozen(order=True)
class Said:
    """One line of a process; `process` counts them."""

    when: int
    word: str
    key: str
    id: int
    process: int


def said(processes: Sequence[Child]) -> list[Said]:
    """What they said of rows, in the order in which it happened."""
    lines = [
        Said(int(when), word, key, int(id), number)
        for number, process in enumerate(processes)
        for word, key, id, when in map(str.split, [*process.said("started"), *process.said("done")])
    ]
    return sorted(lines)


def check(processes: Sequence[Child], killed: Sequence[int]) -> None:
    """In each line ids never go back, and a row is begun again only where the process that had it was killed."""
    lines: dict[str, list[Said]] = defaultdict(list)
    for one in said(processes):
        lines[one.key].append(one)
    done = {one.id for line in lines.values() for one in line if one.word == "done"}
    assert done == set(range(1, ROWS + 1))
    for line in lines.values():
        for before, one in pairwise(line):
            assert one.id >= before.id
            if one.word == "done":
                assert (before.word, before.id, before.process) == ("started", one.id, one.process)
            elif one.id == before.id:
                assert before.process in killed
            else:
                assert before.word == "done"


def run(database: Database, spec: TableSpec, **options: Any) -> None:
    with Broker(database.url) as broker:
        created(broker, spec)
    connection = database.connect()
    connection.execute("BEGIN")
    fill = FILL if database.kind == "sqlite" else FILL.replace("?", "%s")
    for number in range(ROWS):
        connection.execute(fill, (f"k{number % KEYS}",))
    connection.execute("COMMIT")
    processes: list[Child] = []
    killed: list[int] = []
    with ExitStack() as stack:

        def start() -> None:
            made = child(WORKER, database.url, lease=LEASE, seconds=WORK, workers=3, **options)
            processes.append(stack.enter_context(made))

        start()
        processes[0].wait_for("started")  # or the second could do all before the first is there
        start()
        for number in range(KILLS):
            victim = processes[number]  # the older of the two
            victim.wait_for("done", 10)
            victim.signal(signal.SIGKILL)
            assert victim.exit_code() == -signal.SIGKILL
            killed.append(number)
            start()
        wait_until(lambda: database.execute(LEFT) == [(0,)], 60)
        for survivor in processes[KILLS:]:
            survivor.stop()
            assert survivor.said("lost") == []
        check(processes, killed)


@pytest.mark.sample("sqlite")
def test_processes_that_are_killed_in_turn_keep_each_line_in_order_by_lease(database: Database) -> None:
    """PAINS 18, SUITE 56"""
    run(database, spec_of(LineJob), row_lock=False)


def test_processes_that_are_killed_in_turn_keep_each_line_in_order_by_row_lock(postgres_database: Database) -> None:
    """PAINS 18, SUITE 56"""
    run(postgres_database, by_row_lock(LineJob), row_lock=True)
