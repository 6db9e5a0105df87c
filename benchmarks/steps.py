"""Tasks of three steps that do nothing, and the tables that they stand in."""

import time
from typing import Any

import attrs

from benchmarks.jobs import LIMIT
from sqlqueue import Consumer
from sqlqueue.steps import Next, Step, StepContext, Task, TaskQueue
from tests.support.database import Database


@attrs.frozen
class Third(Step):
    number: str

    def run(self, context: StepContext) -> Next:
        return DONE


@attrs.frozen
class Second(Step):
    number: str

    def run(self, context: StepContext) -> Next:
        return Next.now(Third(self.number))


@attrs.frozen
class First(Step):
    number: str

    def run(self, context: StepContext) -> Next:
        return Next.now(Second(self.number))


DONE = Next.done()
BENCH = Task("Bench", [First, Second, Third])
STORED = '{"Bench":{"First":{"number":"A-17"}}}'
STEPS = 3

FILL_SQLITE = """
WITH RECURSIVE numbers(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM numbers WHERE n < ?)
INSERT INTO {table} (step, error) SELECT ?, ? FROM numbers
"""
FILL_POSTGRES = "INSERT INTO {table} (step, error) SELECT %s, %s::text FROM generate_series(1, %s)"


def fill(database: Database, connection: Any, table: str, tasks: int, error: str | None = None) -> None:
    """Insert and commit so many tasks, as another program does."""
    if database.kind == "sqlite":
        connection.execute("BEGIN")
        connection.execute(FILL_SQLITE.format(table=table), (tasks, STORED, error))
        connection.execute("COMMIT")
    else:
        connection.execute(FILL_POSTGRES.format(table=table), (STORED, error, tasks))


@attrs.frozen
class Tasks:
    """So many tasks in a table, beside so many parked ones, which stay there. A row of a race is a step."""

    database: Database
    table: str
    tasks: int
    _filler: Any
    parked: int = 0

    @property
    def rows(self) -> int:
        return self.tasks * STEPS

    def park(self) -> None:
        """Once, before the first round."""
        fill(self.database, self._filler, self.table, self.parked, "no")
        if self.database.kind != "sqlite":
            self._filler.execute(f"ANALYZE {self.table}")

    def empty(self) -> None:
        if self.parked or self.database.kind == "sqlite":
            self._filler.execute(f"DELETE FROM {self.table} WHERE error IS NULL")
        else:
            self._filler.execute(f"TRUNCATE {self.table}")

    def fill(self) -> None:
        fill(self.database, self._filler, self.table, self.tasks)


@attrs.define
class Runs:
    """A consumer of the tasks, idle beside the table while that is filled."""

    _stock: Tasks
    _tasks: TaskQueue
    _consumer: Consumer | None = None

    def set_up(self) -> None:
        self._stock.empty()
        self._consumer = Consumer(self._tasks.broker, queues=self._tasks.queue)
        self._consumer.start()
        self._tasks.enqueue(First("first"))
        self._wait(STEPS)
        time.sleep(0.02)  # its claim on the empty table that follows
        self._stock.fill()

    def drain(self) -> None:
        self._tasks.broker.wake(self._tasks.queue)
        self._wait(STEPS + self._stock.rows)

    def _wait(self, steps: int) -> None:
        assert self._consumer is not None
        ends = time.monotonic() + LIMIT
        while self._consumer.health().queues[0].settled < steps:
            if time.monotonic() > ends:
                raise TimeoutError(f"not {steps} steps after {LIMIT} s: {self._consumer.health()}")
            time.sleep(0.003)

    def rest(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.stop()

    def close(self) -> None:
        self.rest()
