"""Tasks of several steps that leave a trace: each step that begins in a file, and what transactional ones write in a
table, beside the step's own move.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import uniform
from typing import Any, ClassVar

import attrs

from sqlqueue import Broker
from sqlqueue.steps import Next, Step, StepContext, Task, TaskQueue

#: What a queue's steps are: all transactional, none of them, or every other one.
TRANSACTIONAL, PLAIN, MIXED = "transactional", "plain", "mixed"
KINDS = (TRANSACTIONAL, PLAIN, MIXED)

#: No key keeps an effect from being written twice; the ids tell in which order they were written.
EFFECTS = "CREATE TABLE effects (id {generated}, task text NOT NULL, number integer NOT NULL)"
WRITE = "INSERT INTO effects (task, number) VALUES ('{task}', {number})"
#: The generated key, by the name of the dialect.
GENERATED = {"sqlite": "INTEGER PRIMARY KEY AUTOINCREMENT", "PostgreSQL": "bigserial PRIMARY KEY"}

LEFT = "SELECT count(*) FROM pg_task"
WRITTEN = "SELECT task, number FROM effects ORDER BY id"


class Trace:
    """Lines in a file that several processes append to, each line whole; a killed process's reach it as well."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def note(self, task: object, number: int) -> None:
        os.write(self._file, f"{task} {number} {os.getpid()}\n".encode())


def _nowhere(point: str) -> None:
    """Nobody is killed here."""


@attrs.define
class Process:
    """What steps find in the process that runs them; they take up to `work` seconds before and after what they do."""

    trace: Trace | None = None
    at: Callable[[str], None] = _nowhere
    work: float = 0.0
    _never: threading.Event = attrs.field(factory=threading.Event)

    def begin(self, context: StepContext, number: int) -> None:
        self.pause()
        assert self.trace is not None
        self.trace.note(context.id, number)
        self.at("began")

    def pause(self) -> None:
        if self.work:
            self._never.wait(uniform(0, self.work))


process = Process()


@attrs.frozen
class Noted(Step):
    """Its effect is its line in the trace."""

    retry_limit: ClassVar[int] = 1000  # each crash is a try
    kind: str
    number: int
    last: int

    def run(self, context: StepContext) -> Next:
        process.begin(context, self.number)
        process.pause()
        return next_of(self)


@attrs.frozen
class Written(Step):
    """Its effect is a row, which commits with the task's move."""

    retry_limit: ClassVar[int] = 1000
    transactional: ClassVar[bool] = True
    kind: str
    number: int
    last: int

    def run(self, context: StepContext) -> Next:
        process.begin(context, self.number)
        context.connection.execute(WRITE.format(task=context.id, number=self.number))
        process.at("wrote")
        process.pause()
        return next_of(self)


def writes(kind: str, number: int) -> bool:
    """Whether the step of that number is a transactional one."""
    return kind == TRANSACTIONAL or (kind == MIXED and number % 2 == 1)


def step_of(kind: str, number: int, last: int) -> Step:
    return (Written if writes(kind, number) else Noted)(kind, number, last)


def next_of(step: Noted | Written) -> Next:
    if step.number == step.last:
        return Next.done()
    return Next.now(step_of(step.kind, step.number + 1, step.last))


def walks_on(broker: Broker, kind: str, workers: int = 1) -> TaskQueue:
    steps: Mapping[str, Sequence[type[Step]]] = {TRANSACTIONAL: [Written], PLAIN: [Noted], MIXED: [Written, Noted]}
    return TaskQueue(broker, [Task("Walk", steps[kind])], workers=workers)


def make_tables(broker: Broker, kind: str) -> TaskQueue:
    """The queue of walks, its table and that of their effects made."""
    walks = walks_on(broker, kind)
    broker.create_tables()
    ask(broker, EFFECTS.format(generated=GENERATED[broker.dialect.name]))
    return walks


def enqueue(walks: TaskQueue, kind: str, lengths: Iterable[int]) -> None:
    """A task of so many steps for each of `lengths`."""
    walks.enqueue_many(step_of(kind, 1, last) for last in lengths)


def ask(broker: Broker, sql: str) -> list[tuple[Any, ...]]:
    """What a statement of the test's own returns."""
    with broker.pool.connection() as connection:
        cursor = connection.driver.execute(sql)
        return [tuple(row) for row in cursor.fetchall()] if cursor.description else []


def by_task(effects: Iterable[Sequence[Any]]) -> dict[str, list[int]]:
    """The numbers of each task's steps, in the order of their effects."""
    found: dict[str, list[int]] = {}
    for task, number, *_ in effects:
        found.setdefault(str(task), []).append(int(number))
    return found


def traced(path: Path) -> list[list[str]]:
    """Each step that began: its task, its number and its process."""
    return [line.split() for line in path.read_text().splitlines()]
