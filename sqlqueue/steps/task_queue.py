"""The queue of tasks: enqueue a first step; the broker's consumers take it from there."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Any

import attrs

from sqlqueue.broker import Broker
from sqlqueue.clock import Duration
from sqlqueue.errors import DeclarationError
from sqlqueue.handler import Handler, Settings, make_handler, some_seconds, whole
from sqlqueue.inspect import AsFound, listed
from sqlqueue.queue import Queue
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.steps.catalogue import Catalogue
from sqlqueue.steps.running import StepRunner, read_id, run_step
from sqlqueue.steps.shape import Stepping
from sqlqueue.steps.step import Step, StepRun
from sqlqueue.steps.table import StoredTask, TaskReader, TaskState, check_roles, noted_in, task_table
from sqlqueue.steps.task import Task

#: The channel of pg_task's own trigger, and where its workers are told to stop.
PG_TASK_CHANGED = "pg_task_changed"


class TaskQueue:
    """The tasks in one table of a broker; every consumer of the broker works them off.

    `tasks`: those whose steps may stand there. `table`: its name, or a table of one's own that is declared with all the
    roles that tasks need. `schema`: the table's schema. `workers`: steps that run at once in this process (1). `lease`,
    `poll_interval`: seconds, by default the broker's. `notify`: whether consumers listen for changes, where the
    database notifies; it costs a connection each. `adopt_after`: seconds without a change after which a row that runs
    without a lease counts as left by another program that is gone; by default it is never touched. `on_step`: called
    with each run of a step once it is settled, a `StepRun`; it must be quick and thread-safe.

    Raises `DeclarationError` for what cannot work.
    """

    def __init__(
        self,
        broker: Broker,
        tasks: Iterable[Task],
        *,
        table: str | type | TableSpec = "pg_task",
        schema: str | None = None,
        workers: int = 1,
        lease: Duration | None = None,
        poll_interval: Duration | None = None,
        notify: bool = True,
        adopt_after: Duration | None = None,
        on_step: Callable[[StepRun], object] | None = None,
    ) -> None:
        self.broker, self.tasks = broker, _checked(tasks)
        self._names = ", ".join(task.name for task in self.tasks)
        self._catalogue = Catalogue(self.tasks, broker.codec)
        spec = _spec(table, schema)
        if notify:
            broker.dialect.check_channel(spec.full_name, None)
        if on_step is not None and not callable(on_step):
            raise DeclarationError(f"on_step={on_step!r:.200} cannot be called; give a function that takes a StepRun")
        self.queue: Queue = broker.queue(spec)
        stepping = Stepping(updated_at=noted_in(spec), adopt_after=_adopt_seconds(spec, adopt_after))
        handler = self._handler(
            stepping,
            on_step,
            workers=whole(workers, f"table {spec.name!r}: workers", 1),
            lease=lease,
            poll_interval=poll_interval,
        )
        self._check_alone()
        self.queue.register(attrs.evolve(handler, channels=(spec.full_name, PG_TASK_CHANGED) if notify else ()))

    def _handler(self, stepping: Stepping, on_step: Callable[[StepRun], object] | None, **settings: Any) -> Handler:
        spec, dialect = self.queue.spec, self.broker.dialect
        payload, id_of = spec.role(Role.PAYLOAD), partial(read_id, dialect.decoder(spec.id))
        assert payload is not None
        handler = make_handler(
            partial(run_step, self._catalogue, id_of),
            spec,
            Settings(
                transactional=any(kind.step.transactional for kind in self._catalogue),
                retry=None,
                on_decode_error=None,
                **settings,
            ),
            lease=self.broker.lease,
            poll_interval=self.broker.poll_interval,
        )
        runner = partial(
            StepRunner,
            catalogue=self._catalogue,
            payload=payload,
            encode=dialect.encoder(payload),
            on_step=on_step,
            id_of=id_of,
            skipped=stepping.left,
            wake_others=partial(_wake_others, self.queue),
        )
        return attrs.evolve(handler, name=f"of the tasks {self._names}", kind=bytes, stepping=stepping, runner=runner)

    def _check_alone(self) -> None:
        for queue in self.broker.queues:
            other = queue.registered
            if queue.name == self.name and other is not None and other.stepping is not None:
                raise DeclarationError(
                    f"table {self.name!r} has a TaskQueue {other.name} already, and this one is of the tasks "
                    f"{self._names}; make one TaskQueue with all of them"
                )

    @property
    def name(self) -> str:
        """The table's name, with its schema where there is one."""
        return self.queue.name

    # -- enqueue ----------------------------------------------------------------------------------------------

    def enqueue(self, step: Step, *, connection: Any = None) -> Any:
        """Begin a task with `step`, due at once, and return its id, a UUID.

        `connection`: the caller's own, as `Queue.enqueue` takes it; the task then begins with its commit. Raises
        `EncodeError` for a step that cannot be stored, before the database is touched, `BrokerClosed`, and the driver's
        error where the insert fails.
        """
        return self.queue.enqueue(self._catalogue.encode(step), connection=connection)

    def delay(self, step: Step, after: Duration, *, connection: Any = None) -> Any:
        """The same, due after so many seconds, or a timedelta; a negative or overflowing delay is a `ValueError`."""
        if after is None:
            raise TypeError(
                "after is None; give seconds or a timedelta, or call enqueue(step) for a task that is due at once"
            )
        return self.queue.enqueue(self._catalogue.encode(step), delay=after, connection=connection)

    def schedule(self, step: Step, at: datetime, *, connection: Any = None) -> Any:
        """The same, due at `at`, an aware datetime; a naive one is a `ValueError`."""
        if at is None:
            raise TypeError("at is None; give an aware datetime; enqueue(step) begins a task at once")
        return self.queue.enqueue(self._catalogue.encode(step), at=at, connection=connection)

    def enqueue_many(self, steps: Iterable[Step], *, connection: Any = None) -> int:
        """Begin a task with each of these steps, all in one transaction, the fastest way; how many."""
        return self.queue.enqueue_many((self._catalogue.encode(step) for step in steps), connection=connection)

    # -- inspect and mend -------------------------------------------------------------------------------------

    def get(self, id: Any) -> StoredTask | None:
        """The task of that id, or that was shown before, None where there is none, or none any more. `ValueError` for
        what is no id."""
        with self.broker.pool.connection() as ours:
            return self._reader.get(ours, id)

    def list(self, state: TaskState | str | None = None, *, limit: int = 100) -> Sequence[StoredTask]:
        """The first `limit` tasks, of one state (`running`, `due`, `delayed`, `parked`) or of all, by `wakeup_at`."""
        wanted = None if state is None else _state(state)
        most = whole(limit, "limit", 0)
        with self.broker.pool.connection() as ours:
            return self._reader.list(ours, wanted, most)

    def resume(
        self,
        ids: Any = None,
        *,
        step: type[Step] | str | None = None,
        connection: Any = None,
    ) -> int:
        """Clear the error of parked tasks, which then go on at their step with a fresh count; how many.

        `ids`: one id or a list of them, or of `StoredTask`s, None for all. `step`: only those parked at this step, a
        class or its name (`"Step"` or `"Task.Step"`). `connection` as in `enqueue`. A task that is not parked is left
        alone. Raises `ValueError` for what is no id or no step.
        """
        given = None if ids is None else listed(ids)
        if step is not None:
            given = self._at(step, given, connection)
        elif given is not None:
            given = [spelling for id in given for spelling in self._reader.spellings(id)]
        return self.queue.requeue(given and [AsFound(id) for id in given], connection=connection)

    def ddl(self) -> str:
        """The recommended table, index and, where consumers listen, triggers, as a script."""
        return self.broker.ddl(self.queue.spec)

    def _at(self, step: type[Step] | str, ids: Sequence[Any] | None, connection: Any) -> Sequence[Any]:
        kinds = [kind for kind in self._catalogue if kind.step is step]
        if isinstance(step, str):
            kinds = self._catalogue.called(step)
        if not kinds:
            known = ", ".join(f"{kind.task}.{kind.name}" for kind in self._catalogue)
            raise ValueError(f"step={step!r} is no step of these tasks; they are {known}")
        if connection is not None:
            return self._reader.parked(self.broker.adopt(connection), kinds, ids)
        with self.broker.pool.connection() as ours:
            return self._reader.parked(ours, kinds, ids)

    @cached_property
    def _reader(self) -> TaskReader:
        return TaskReader(QueueSQL(self.broker.dialect, self.queue.spec, grouped=False), self._catalogue)


def _wake_others(queue: Queue) -> None:
    """Wake the consumers of other programs, within a second or not at all."""
    notifications = queue.broker.notifications(queue)
    if notifications:
        with queue.broker.pool.connection(1.0) as connection:
            connection.run(notifications)


def _checked(tasks: Any) -> tuple[Task, ...]:
    found = tuple(tasks) if isinstance(tasks, Iterable) else (tasks,)
    for task in found:
        if not isinstance(task, Task):
            raise DeclarationError(f"tasks= holds {task!r:.200}; give a list of sqlqueue.steps.Task")
    if not found:
        raise DeclarationError("tasks= is empty; give the tasks whose steps this queue runs")
    return found


def _spec(table: str | type | TableSpec, schema: str | None) -> TableSpec:
    if isinstance(table, str):
        return task_table(table, schema)
    if schema is not None:
        raise DeclarationError(f"schema={schema!r} is given beside a declared table; name it where that is declared")
    spec = spec_of(table)
    check_roles(spec)
    return spec


def _adopt_seconds(spec: TableSpec, given: Duration | None) -> float | None:
    if given is None:
        return None
    if noted_in(spec) is None:
        raise DeclarationError(
            f"table {spec.name!r}: adopt_after={given!r} needs a column updated_at, which tells how long a "
            "row was left alone; add one, or leave adopt_after out"
        )
    return some_seconds(given, "adopt_after", "would take running tasks")


def _state(given: TaskState | str) -> TaskState:
    try:
        return TaskState(given)
    except ValueError:
        known = ", ".join(state.value for state in TaskState)
        raise ValueError(f"state={given!r} is none of {known}") from None
