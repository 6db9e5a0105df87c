"""The steps of the suite, and what they meet and leave in the world."""

from collections.abc import Callable, Iterator
from threading import Event
from typing import Any, ClassVar, cast

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.clock import Clock, Duration
from sqlqueue.outcome import DeadLetter
from sqlqueue.retry import Exponential, RetryPolicy
from sqlqueue.steps import Next, Step, StepContext, Task, TaskQueue, task_table
from sqlqueue.testing.contract.harness import Contract, Database, shown


@attrs.define
class World:
    """`seen`: what ran, as (step, what it held, attempt). `broken`: whether reading fails. `at_work`, `go_on`: a slow
    step says that it runs, and waits."""

    seen: list[tuple[str, Any, int]] = attrs.field(factory=list)
    broken: bool = False
    at_work: Event = attrs.field(factory=Event)
    go_on: Event = attrs.field(factory=Event)


#: How a task stands that nobody works on.
RESTING = ("tried", "is_running", "error", "locked_until")

#: Steps are values, so what they do is done to the one world that there is.
WORLD = World()


def see(context: StepContext, held: Any) -> None:
    WORLD.seen.append((context.step, held, context.attempt))


@attrs.frozen
class Read(Step):
    retry_limit: ClassVar[int] = 5
    retry_delay: ClassVar[Duration | RetryPolicy] = 10.0
    filename: str

    def run(self, context: StepContext) -> Next:
        see(context, self.filename)
        if WORLD.broken:
            raise ValueError("nothing to greet") from OSError("the disk is gone")
        return Next.now(Greet(self.filename.upper()))


@attrs.frozen
class Greet(Step):
    name: str

    def run(self, context: StepContext) -> Next:
        see(context, self.name)
        return Next.delay(Part(), 60)


@attrs.frozen
class Part(Step):
    def run(self, context: StepContext) -> Next:
        see(context, None)
        return Next.done()


@attrs.frozen
class Count(Step):
    """Holds one value, and is soon given up."""

    retry_limit: ClassVar[int] = 1
    retry_delay: ClassVar[Duration | RetryPolicy] = Exponential(first=3, jitter=0)
    number: int | None

    def run(self, context: StepContext) -> Next:
        see(context, self.number)
        if WORLD.broken:
            raise RuntimeError("cannot count")
        return Next.done()


@attrs.frozen
class Anything(Step):
    value: Any

    def run(self, context: StepContext) -> Next:
        return Next.done()


@attrs.frozen
class Lead(Step):
    """Leads to a step that cannot be stored, or to none, as it is told."""

    retry_limit: ClassVar[int] = 7
    where: str

    def run(self, context: StepContext) -> Next:
        see(context, self.where)
        if self.where == "nowhere":
            return None  # type: ignore[return-value]  # a mistake that a program can make
        return Next.now(Anything(object()))


@attrs.frozen
class Slow(Step):
    def run(self, context: StepContext) -> Next:
        see(context, None)
        WORLD.at_work.set()
        assert WORLD.go_on.wait(10)
        return Next.now(Part())


class Odd:
    """As a row of an ORM whose session is closed."""

    def __repr__(self) -> str:
        raise RuntimeError("no session")


#: What a step must not answer, and what is said of it.
ANSWERS: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: None, "step Answer returned None; return Next.now"),
    "an odd object": (Odd, "step Answer returned <Odd whose repr fails with RuntimeError>; return Next.now"),
    "an odd step": (lambda: Next.now(cast(Any, Odd())), "<Odd whose repr fails with RuntimeError> is no step"),
    "an odd reason": (lambda: DeadLetter(cast(Any, OddText())), "<OddText whose str fails with RuntimeError>"),
    "an odd outcome": (lambda: OddOutcome(), "what step Answer answered cannot be settled: RuntimeError: no reason"),
    "a number as text": (lambda: Next.now(Count(cast(Any, "17"))), "number: '17' is no int"),
    "a deep step": (lambda: Next.now(Anything(deep(100_000))), "step Anything of task Others cannot be stored as JSON"),
}


class OddText:
    def __str__(self) -> str:
        raise RuntimeError("no text")


class OddOutcome(DeadLetter):
    def __getattribute__(self, name: str) -> Any:
        if name == "reason" and super().__getattribute__("args"):  # once it is made
            raise RuntimeError("no reason")
        return super().__getattribute__(name)


def deep(depth: int) -> list[Any]:
    made: list[Any] = []
    for _ in range(depth):
        made = [made]
    return made


@attrs.frozen
class Answer(Step):
    """Answers what no step should."""

    retry_limit: ClassVar[int] = 7
    what: str

    def run(self, context: StepContext) -> Next:
        see(context, self.what)
        return cast(Next, ANSWERS[self.what][0]())


GREETER = Task("Greeter", [Read, Greet, Part])
OTHERS = Task("Others", [Count, Anything, Answer, Lead, Slow])


def fresh_world() -> Iterator[World]:
    """The world as if nothing had happened, for one test; a step that still waits is let go behind it."""
    WORLD.seen.clear()
    WORLD.broken = False
    for event in (WORLD.at_work, WORLD.go_on):
        event.clear()
    yield WORLD
    WORLD.go_on.set()


class StepsBase(Contract):
    """A world for each test, and looks at the table."""

    @pytest.fixture
    def world(self) -> Iterator[World]:
        yield from fresh_world()


def tasks_on(broker: Broker, clock: Clock | None = None, *tasks: Task, **settings: Any) -> TaskQueue:
    """A queue of these tasks, or of all of the suite's, that is told the time by `clock`; the table is there."""
    spec = task_table() if clock is None else attrs.evolve(task_table(), clock=clock)
    queue = TaskQueue(broker, tasks or (GREETER, OTHERS), table=spec, **settings)
    broker.create_tables()
    return queue


def rows(database: Database, tasks: TaskQueue, *fields: str) -> list[tuple[Any, ...]]:
    """These fields of all tasks, by id, as another program finds them."""
    return shown(database, tasks.queue, *fields)


def insert(database: Database, stored: str) -> None:
    """As another language's producer does."""
    database.execute("INSERT INTO pg_task (step) VALUES (?)", stored)
