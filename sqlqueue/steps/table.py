"""The table of tasks, pg_task's and a lease beside it, and its tasks as they stand."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from enum import Enum
from typing import Any
from uuid import UUID

import attrs

from sqlqueue.connection import Connection
from sqlqueue.delivery import decode_column
from sqlqueue.dialect import Row
from sqlqueue.errors import DeclarationError, DecodeError
from sqlqueue.inspect import id_in
from sqlqueue.queue_sql import QueueSQL, every
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Call, Statement
from sqlqueue.steps.catalogue import Catalogue, StepKind, UnknownStep, names_of, text_of
from sqlqueue.steps.step import Step
from sqlqueue.strategies.plan import Parameters

#: What a queue of tasks cannot do without.
NEEDED = (Role.PAYLOAD, Role.RETRY_AFTER, Role.ATTEMPT, Role.RUNNING, Role.ERROR, Role.LEASE)

#: The roles of the columns that are read, beside the moments that have none.
READ = (Role.ID, *NEEDED)
NOTED = ("created_at", "updated_at")

#: What it does not serve: no task would be in a group, wait for its key, or be kept once it is done.
REFUSED = (Role.GROUP, Role.PARTITION_KEY, Role.PROCESSED_AT)

LIST = """
SELECT {columns} FROM {table}
WHERE {conditions}
ORDER BY {wakeup_at}, {id}
LIMIT :limit
"""

GET = """
SELECT {columns} FROM {table}
WHERE {id} = :id
"""

# The steps of parked tasks, for a choice among them.
PARKED = """
SELECT {id}, {step} FROM {table}
WHERE {conditions}
ORDER BY {id}
LIMIT :limit
"""


def task_table(name: str = "pg_task", schema: str | None = None) -> TableSpec:
    """The description of a table that holds tasks, with the columns of pg_task (https://docs.rs/pg_task) and
    `locked_until`.

    What a new task leaves empty is generated: the insert names the step and its time alone, as pg_task's own does.
    """
    return TableSpec(
        name=name,
        schema=schema,
        columns=(
            ColumnSpec(field="id", type=UUID, role=Role.ID, generated=True),
            ColumnSpec(field="step", type=str, role=Role.PAYLOAD),
            ColumnSpec(field="wakeup_at", type=datetime, role=Role.RETRY_AFTER),
            ColumnSpec(field="tried", type=int, role=Role.ATTEMPT, generated=True),
            ColumnSpec(field="is_running", type=bool, role=Role.RUNNING, generated=True),
            ColumnSpec(field="error", type=str, optional=True, role=Role.ERROR, generated=True),
            ColumnSpec(field="created_at", type=datetime, generated=True),
            ColumnSpec(field="updated_at", type=datetime, generated=True),
            ColumnSpec(field="locked_until", type=datetime, optional=True, role=Role.LEASE, generated=True),
        ),
    )


def check_roles(spec: TableSpec) -> None:
    """`DeclarationError` where a table of the user's own cannot hold tasks."""
    for role in NEEDED:
        if not spec.has(role):
            raise DeclarationError(
                f"table {spec.name!r}: tasks need a column for the role {role.value!r}; mark one with "
                f"column.{role.value}(), or leave table= out for pg_task's own"
            )
    for role in REFUSED:
        column = spec.role(role)
        if column is not None:
            raise DeclarationError(
                f"table {spec.name!r}: its column {column.field!r} has the role {role.value!r}, which queues of "
                f"tasks do not serve; leave the mark column.{role.value}() out, and the column is one of your own"
            )


def noted_in(spec: TableSpec) -> ColumnSpec | None:
    """The column that says when a row was changed, `updated_at`."""
    return next((column for column in spec.columns if column.field == "updated_at" and column.role is None), None)


class TaskState(Enum):
    """How a task stands: its step runs, waits to be run, waits for its time, or waits for somebody to mend it."""

    RUNNING = "running"
    DUE = "due"
    DELAYED = "delayed"
    PARKED = "parked"


@attrs.frozen(kw_only=True)
class StoredTask:
    """A task as its row stood when it was read.

    `task` and `name` are those that its step is stored by, `step` is that step: all None where it does not decode, and
    `step` also where it is not known here; `stored` is its text. `tried` counts the tries begun. Moments are aware UTC;
    those whose column the table lacks, or that no datetime holds, such as PostgreSQL's infinity, are None.
    """

    id: Any
    task: str | None
    name: str | None
    step: Step | None
    stored: str | None
    state: TaskState
    wakeup_at: datetime | None
    tried: int
    error: str | None
    locked_until: datetime | None
    created_at: datetime | None
    updated_at: datetime | None


class TaskReader:
    """Reads the tasks of one queue."""

    def __init__(self, sql: QueueSQL, catalogue: Catalogue) -> None:
        self._sql, self._catalogue = sql, catalogue
        self._parameters = Parameters(sql, group=None, cap=None)
        columns = [column for role in READ if (column := sql.spec.role(role)) is not None]
        noted = [column for column in sql.spec.columns if column.role is None and column.field in NOTED]
        self._columns: Sequence[ColumnSpec] = [*columns, *noted]
        self._decoders = [sql.dialect.decoder(column) for column in self._columns]

    def get(self, connection: Connection, id: Any) -> StoredTask | None:
        """The task of that id, None where there is none; `ValueError` for what is no id."""
        now = self._sql.spec.host_clock.now()
        for spelling in self.spellings(id):
            (rows,) = connection.run([Call(self.getting(), {"id": spelling})])
            if rows:
                return self._stored(rows[0], now, None)
        return None

    def list(self, connection: Connection, state: TaskState | None, limit: int) -> Sequence[StoredTask]:
        """The first tasks of a state, or of any, by when they are due."""
        now = self._sql.spec.host_clock.now()
        (rows,) = connection.run([Call(self.listing(state), {**self._parameters.values(now), "limit": limit})])
        return [self._stored(row, now, state) for row in rows]

    def parked(
        self, connection: Connection, kinds: Sequence[StepKind], among: Sequence[Any] | None = None, page: int = 1000
    ) -> Sequence[Any]:
        """The ids of all parked tasks whose step is one of these kinds, as the driver returns them; of those `among`
        the ids that are given, or of all."""
        wanted = None if among is None else {str(one) for id in among for one in self.spellings(id)}
        parked = [self._condition(TaskState.PARKED)]
        found: list[Any] = []
        values: dict[str, Any] = {"after": None, "limit": page}
        while True:
            statement = self._statement("find parked steps", PARKED, width=2, conditions=every(parked))
            (rows,) = connection.run([Call(statement, values)])
            at_step = (id for id, stored in rows if self._is_one_of(stored, kinds))
            found += [id for id in at_step if wanted is None or str(id) in wanted]
            if len(rows) < page:
                return found
            parked = [parked[0], f"{self._sql.column(Role.ID)} > :after"]
            values["after"] = rows[-1][0]

    def spellings(self, given: Any) -> Sequence[Any]:
        """What may stand in the table for an id, or for a task's; `ValueError` for what is none."""
        column, dialect = self._sql.spec.id, self._sql.dialect
        if isinstance(given, StoredTask):
            return dialect.spellings(column, given.id)  # as it was found, even where it is none
        return dialect.spellings(column, id_in(column, given, self._sql.spec.full_name))

    def _is_one_of(self, stored: Any, kinds: Sequence[StepKind]) -> bool:
        try:
            return self._catalogue.decode(text_of(stored))[0] in kinds
        except (UnknownStep, DecodeError):
            return False

    # -- statements -------------------------------------------------------------------------------------------

    def getting(self) -> Statement:
        return self._statement("get a task", GET, width=len(self._columns))

    def listing(self, state: TaskState | None) -> Statement:
        name = "list tasks" if state is None else f"list {state.value} tasks"
        return self._statement(name, LIST, width=len(self._columns), conditions=self._condition(state))

    def _statement(self, name: str, template: str, *, width: int, conditions: str = "") -> Statement:
        sql = self._sql
        read = [sql.dialect.read(column, sql.qualified(column)) for column in self._columns]
        return sql.statement(
            name,
            template,
            width=width,
            writes=False,
            columns=", ".join(read),
            conditions=conditions,
            wakeup_at=sql.moment(Role.RETRY_AFTER),
            step=read[READ.index(Role.PAYLOAD)],
        )

    def _condition(self, state: TaskState | None) -> str:
        sql, dialect = self._sql, self._sql.dialect
        if state is None:
            return every([])
        if state is TaskState.PARKED:
            return f"{sql.column(Role.ERROR)} IS NOT NULL"
        lease, due = sql.spec.role(Role.LEASE), sql.spec.role(Role.RETRY_AFTER)
        assert lease is not None
        assert due is not None
        ended = dialect.ended(sql.qualified(lease), lease, sql.now(Role.LEASE))
        running = f"({sql.column(Role.RUNNING)} = TRUE AND ({sql.qualified(lease)} IS NULL OR NOT {ended}))"
        unparked = f"{sql.column(Role.ERROR)} IS NULL"
        if state is TaskState.RUNNING:
            return every([unparked, running])
        is_due = " OR ".join(dialect.due(sql.moment(Role.RETRY_AFTER), due, sql.now(Role.RETRY_AFTER)))
        when = f"({is_due})" if state is TaskState.DUE else f"NOT ({is_due})"
        return every([unparked, f"NOT {running}", when])

    # -- rows -------------------------------------------------------------------------------------------------

    def _stored(self, row: Row, now: datetime, state: TaskState | None) -> StoredTask:
        """A row as it can be read, column by column: one odd row must not hide the others. `state`: what the database
        found it in, which knows an order of moments that no datetime holds."""
        values: dict[str, Any] = {}
        for column, decode, value in zip(self._columns, self._decoders, row, strict=True):
            field = column.field if column.role is None else column.role.value
            try:
                values[field] = decode_column(decode, column, value)
            except DecodeError:
                values[field] = value if column.role is Role.ID else None
        stored = None if values["payload"] is None else text_of(values["payload"])
        task = name = step = None
        with suppress(UnknownStep, DecodeError):  # it is shown as far as it can be read
            task, name, fields = names_of(stored or "")
            step = self._catalogue.named(task, name).read(fields)
        if state is None:
            state = _state(now, values["error"], values["running"], values["lease"], values["retry_after"])
        return StoredTask(
            id=values["id"],
            task=task,
            name=name,
            step=step,
            stored=stored,
            state=state,
            wakeup_at=values["retry_after"],
            tried=values["attempt"] or 0,
            error=values["error"],
            locked_until=values["lease"],
            created_at=values.get("created_at"),
            updated_at=values.get("updated_at"),
        )


def _state(
    now: datetime, error: str | None, running: bool | None, lease: datetime | None, due: datetime | None
) -> TaskState:
    """One that a lost worker left counts as due."""
    if error is not None:
        return TaskState.PARKED
    if running and (lease is None or lease > now):
        return TaskState.RUNNING
    return TaskState.DUE if due is None or due <= now else TaskState.DELAYED
