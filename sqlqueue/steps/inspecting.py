"""Inspect: the tasks of a table as they stand."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import Enum
from typing import Any

import attrs

from sqlqueue.connection import Connection
from sqlqueue.delivery import decode_column
from sqlqueue.dialect import Converter, Row
from sqlqueue.errors import DecodeError
from sqlqueue.inspect import id_in
from sqlqueue.queue_sql import QueueSQL, every
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import Call, Statement
from sqlqueue.steps.catalogue import Catalogue, UnknownStep, names_of, text_of
from sqlqueue.steps.step import Step
from sqlqueue.strategies.plan import Parameters

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


#: The roles of the columns that are read, beside the moments that have none.
READ = (Role.ID, Role.PAYLOAD, Role.RETRY_AFTER, Role.ATTEMPT, Role.RUNNING, Role.ERROR, Role.LEASE)
NOTED = ("created_at", "updated_at")


class Inspecting:
    """Reads the tasks of one queue."""

    def __init__(self, sql: QueueSQL, catalogue: Catalogue) -> None:
        self._sql, self._catalogue = sql, catalogue
        self._binding = Parameters(sql, group=None, cap=None)
        columns = [column for role in READ if (column := sql.spec.role(role)) is not None]
        noted = [column for column in sql.spec.columns if column.role is None and column.field in NOTED]
        self._columns: Sequence[ColumnSpec] = [*columns, *noted]
        self._decoders = [sql.dialect.decoder(column) for column in self._columns]

    def get(self, connection: Connection, id: Any) -> StoredTask | None:
        """The task of that id, None where there is none; `ValueError` for what is no id."""
        now = self._now()
        for spelling in self.spellings(id):
            (rows,) = connection.run([Call(self.getting(), {"id": spelling})])
            if rows:
                return self._shown(rows[0], now, None)
        return None

    def list(self, connection: Connection, state: TaskState | None, limit: int) -> Sequence[StoredTask]:
        """The first tasks of a state, or of any, by when they are due."""
        now = self._now()
        (rows,) = connection.run([Call(self.listing(state), {**self._binding.values(now), "limit": limit})])
        return [self._shown(row, now, state) for row in rows]

    def parked(
        self, connection: Connection, kinds: Sequence[Any], among: Sequence[Any] | None = None, page: int = 1000
    ) -> Sequence[Any]:
        """The ids of all parked tasks whose step is one of these kinds, as the driver returns them; of those `among`
        the ids that are given, or of all."""
        wanted = None if among is None else {str(one) for id in among for one in self.spellings(id)}
        parked = [self._condition(TaskState.PARKED)]
        behind = [*parked, f"{self._sql.column(Role.ID)} > :after"]
        found: list[Any] = []
        after: Any = None
        while True:
            conditions = every(parked if after is None else behind)
            statement = self._statement("find parked steps", PARKED, width=2, conditions=conditions)
            (rows,) = connection.run([Call(statement, {"after": after, "limit": page})])
            at_step = (id for id, stored in rows if self._is_one_of(stored, kinds))
            found += [id for id in at_step if wanted is None or str(id) in wanted]
            if len(rows) < page:
                return found
            after = rows[-1][0]

    def spellings(self, given: Any) -> Sequence[Any]:
        """What may stand in the table for an id, or for a task's; `ValueError` for what is none."""
        column, dialect = self._sql.spec.id, self._sql.dialect
        if isinstance(given, StoredTask):
            return dialect.spellings(column, given.id)  # as it was found, even where it is none
        return dialect.spellings(column, id_in(column, given, self._sql.spec.full_name))

    def _is_one_of(self, stored: Any, kinds: Sequence[Any]) -> bool:
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
        error, lease, due = sql.column(Role.ERROR), sql.spec.role(Role.LEASE), sql.spec.role(Role.RETRY_AFTER)
        assert lease is not None
        assert due is not None
        if state is None:
            return every([])
        if state is TaskState.PARKED:
            return f"{error} IS NOT NULL"
        ended = dialect.ended(sql.qualified(lease), lease, sql.now(Role.LEASE))
        running = f"({sql.column(Role.RUNNING)} = TRUE AND ({sql.qualified(lease)} IS NULL OR NOT {ended}))"
        if state is TaskState.RUNNING:
            return every([f"{error} IS NULL", running])
        is_due = " OR ".join(dialect.due(sql.moment(Role.RETRY_AFTER), due, sql.now(Role.RETRY_AFTER)))
        when = f"({is_due})" if state is TaskState.DUE else f"NOT ({is_due})"
        return every([f"{error} IS NULL", f"NOT {running}", when])

    def _now(self) -> datetime:
        return self._sql.spec.host_clock.now()

    # -- rows -------------------------------------------------------------------------------------------------

    def _shown(self, row: Row, now: datetime, state: TaskState | None) -> StoredTask:
        """A row as it can be read, column by column. `state`: what the database found it in, which knows an order of
        moments that no datetime holds."""
        values = {
            column.field if column.role is None else column.role.value: _readable(decode, column, value)
            for column, decode, value in zip(self._columns, self._decoders, row, strict=True)
        }
        stored = None if values["payload"] is None else text_of(values["payload"])
        task = name = step = None
        with suppress(UnknownStep, DecodeError):  # it is shown as far as it can be read
            task, name, fields = names_of(stored or "")
            step = self._catalogue.named(task, name).read(fields)
        return StoredTask(
            id=values["id"],
            task=task,
            name=name,
            step=step,
            stored=stored,
            state=_state(values, now) if state is None else state,
            wakeup_at=values["retry_after"],
            tried=values["attempt"] or 0,
            error=values["error"],
            locked_until=values["lease"],
            created_at=values.get("created_at"),
            updated_at=values.get("updated_at"),
        )


def _readable(decode: Converter | None, column: ColumnSpec, value: Any) -> Any:
    """A column's value; one that cannot be read is shown as it is where it is the id, else as None: one odd row must
    not hide the others."""
    try:
        return decode_column(decode, column, value)
    except DecodeError:
        return value if column.role is Role.ID else None


def _state(values: Mapping[str, Any], now: datetime) -> TaskState:
    """One that a lost worker left counts as due."""
    if values["error"] is not None:
        return TaskState.PARKED
    if values["running"] and (values["lease"] is None or values["lease"] > now):
        return TaskState.RUNNING
    due: datetime | None = values["retry_after"]
    return TaskState.DUE if due is None or due <= now else TaskState.DELAYED
