"""Tasks whose workers are killed at any point: each step takes effect, in order, and once where it is transactional."""

import signal
from contextlib import ExitStack

import pytest

from sqlqueue import Broker
from tests.consumer.helpers import wait_until
from tests.crash.programs.step_worker import POINTS
from tests.crash.walking import LEASE, PROCESSES, WORKERS, firsts, trace_file, walk
from tests.crash.walks import LEFT, MIXED, PLAIN, TRANSACTIONAL, WRITTEN, by_task, enqueue, make_tables, traced, writes
from tests.support.children import child
from tests.support.database import Database

WORKER = "tests.crash.programs.step_worker"
TASKS, STEPS = 6, 10
WHOLE = list(range(1, STEPS + 1))
#: A process comes by its point so often and is killed there.
PASSES = 2
#: What SQLite's consumers with several workers say of transactional steps.
ONE_WRITER = "the database has one writer"


@pytest.mark.sample("sqlite-plain", "postgres-transactional")
@pytest.mark.parametrize("kind", [TRANSACTIONAL, PLAIN])
def test_each_step_takes_effect_in_order_though_processes_are_killed(database: Database, kind: str) -> None:
    """PAINS 1: what is written with the task's move is written once."""
    at_once = 1 if database.kind == "sqlite" and kind != PLAIN else PROCESSES * WORKERS  # there is one writer
    made = walk(database.url, kind, [STEPS] * TASKS, work=0.01 * at_once, kill_every=0.3, seed=11)
    assert made.kills >= 1
    assert [firsts(numbers) for numbers in made.begun.values()] == [WHOLE] * TASKS
    assert list(made.written.values()) == ([WHOLE] * TASKS if kind == TRANSACTIONAL else [])
    assert made.left == 0
    assert [line for line in made.said if line.startswith(("parked", "gone", "retried"))] == []


@pytest.mark.sample("sqlite-plain", "postgres-mixed")
@pytest.mark.parametrize("kind", [MIXED, PLAIN])
def test_each_step_takes_effect_in_order_wherever_between_claim_and_commit_a_process_is_killed(
    database: Database, kind: str
) -> None:
    """PAINS 1"""
    with Broker(database.url) as broker:
        enqueue(make_tables(broker, kind), kind, [STEPS] * TASKS)
    with trace_file() as path, ExitStack() as stack:
        options = {"kind": kind, "workers": 2, "work": 0.0, "trace": str(path), "lease": LEASE}
        doomed = [
            stack.enter_context(child(WORKER, database.url, **options, point=point, passes=PASSES))
            for point in POINTS[kind]
        ]
        assert [one.exit_code() for one in doomed] == [-signal.SIGKILL] * len(doomed)
        assert database.execute(LEFT) != [(0,)]
        survivor = stack.enter_context(child(WORKER, database.url, **options))
        wait_until(lambda: database.execute(LEFT) == [(0,)], 60)
        survivor.stop()
        assert [firsts(numbers) for numbers in by_task(traced(path)).values()] == [WHOLE] * TASKS
    written = [number for number in WHOLE if writes(kind, number)]
    assert list(by_task(database.execute(WRITTEN)).values()) == ([written] * TASKS if written else [])


@pytest.mark.sample("sqlite-transactional", "postgres-plain")
@pytest.mark.parametrize("kind", [TRANSACTIONAL, PLAIN])
def test_two_processes_handle_each_step_once(database: Database, kind: str) -> None:
    """PAINS 27: tasks of one step and of three."""
    lengths = [1, 3] * (500 if kind == PLAIN else 150)
    made = walk(database.url, kind, lengths, work=0.0)
    assert made.processes == PROCESSES
    assert sorted(map(list, made.begun.values())) == sorted(list(range(1, length + 1)) for length in lengths)
    assert made.written == (made.begun if kind == TRANSACTIONAL else {})
    assert (made.left, [line for line in made.said if ONE_WRITER not in line]) == (0, [])
