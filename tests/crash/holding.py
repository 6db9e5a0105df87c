"""Tasks whose steps end as their test says, and what their table says of them meanwhile."""

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, ClassVar

import attrs

from sqlqueue import Broker
from sqlqueue.steps import Next, Step, StepContext, Task, TaskQueue
from tests.support.database import Database

EFFECTS = "CREATE TABLE effects (number integer NOT NULL)"
WRITTEN = "SELECT number FROM effects ORDER BY number"
ROWS = "SELECT step, tried, is_running, error, locked_until, wakeup_at FROM pg_task ORDER BY created_at, id"
#: What people ask in psql.
ANY_RUNNING = "SELECT EXISTS (SELECT 1 FROM pg_task WHERE is_running)"


def _unheld(step: Any, context: StepContext) -> Next:
    raise NotImplementedError("it is held in the programs that tests run")


@attrs.frozen
class Held(Step):
    retry_limit: ClassVar[int] = 0
    hold: ClassVar[Callable[[Any, StepContext], Next]] = staticmethod(_unheld)
    number: int

    def run(self, context: StepContext) -> Next:
        return type(self).hold(self, context)


@attrs.frozen
class HeldWriting(Step):
    """Writes a row before it is held."""

    retry_limit: ClassVar[int] = 0
    transactional: ClassVar[bool] = True
    hold: ClassVar[Callable[[Any, StepContext], Next]] = staticmethod(_unheld)
    number: int

    def run(self, context: StepContext) -> Next:
        context.connection.execute(f"INSERT INTO effects VALUES ({self.number})")
        return type(self).hold(self, context)


def held_on(broker: Broker, *, writing: bool = False, beside: bool = False) -> TaskQueue:
    """A queue of held tasks: steps that are transactional where they are `writing`, or `beside` others that are."""
    steps = [Held, HeldWriting] if beside else [HeldWriting if writing else Held]
    return TaskQueue(broker, [Task("Hold", steps)])


def prepare(database: Database, *, tasks: int = 1, writing: bool = False) -> None:
    """The tables, and so many tasks at their first step."""
    database.execute(EFFECTS)
    with Broker(database.url) as broker:
        held = held_on(broker, writing=writing)
        broker.create_tables()
        held.enqueue_many((HeldWriting if writing else Held)(1) for _ in range(tasks))


@attrs.frozen
class Stored:
    """A task's row. `number`: its step's."""

    number: int
    tried: int
    running: bool
    error: str | None
    locked_until: datetime | None
    wakeup_at: datetime


def stored(database: Database) -> list[Stored]:
    return [
        Stored(_number(step), tried, bool(running), error, _instant(locked), _moment(due))
        for step, tried, running, error, locked, due in database.execute(ROWS)
    ]


def any_running(database: Database) -> bool:
    [(answer,)] = database.execute(ANY_RUNNING)
    return bool(answer)


def _number(step: str) -> int:
    return int(step.rpartition(":")[2].rstrip("}"))


def _instant(value: Any) -> datetime | None:
    return None if value is None else _moment(value)


def _moment(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    return datetime.fromisoformat(value).replace(tzinfo=timezone.utc)
