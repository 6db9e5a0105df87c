"""The forms of tables that the model of the queue knows, and another program that writes to them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import attrs

from sqlqueue import AdvisoryLock, Broker, ColumnSpec, Role, TableSpec
from sqlqueue.destination import Destination
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.strategies.dead_letter import DeadLetters
from sqlqueue.testing import ManualClock
from tests.support.database import Database, psycopg_placeholders

#: The group that the queue reads, where the table has groups; those of other programs, and of its dead letters, it does
#: not.
GROUP, ANOTHER, DEAD = "jobs", "others", "dead"

#: Groups whose rows the queue does not read.
UNREAD = (ANOTHER, DEAD)

TYPES: dict[Role, tuple[Any, bool]] = {
    Role.GROUP: (str, False),
    Role.PARTITION_KEY: (str, True),
    Role.PRIORITY: (int, False),
    Role.RETRY_AFTER: (datetime, True),
    Role.ATTEMPT: (int, True),
    Role.PROCESSED_AT: (datetime, True),
    Role.LEASE: (datetime, True),
    Role.ERROR: (str, True),
    Role.RUNNING: (bool, False),
}


@attrs.frozen
class Form:
    """A table with some of the roles, and the clock that it is worked by. `dead`: another table, where dead letters go
    to one; they go to another group where the queue reads one, and else nowhere."""

    spec: TableSpec
    clock: ManualClock
    cap: int | None
    dead: TableSpec | None = None

    @property
    def dead_letter(self) -> Destination | None:
        if self.dead is not None:
            return Destination(self.dead)
        return None if self.group is None else Destination(self.spec, DEAD)

    def dead_letters(self, sql: QueueSQL, columns: Sequence[ColumnSpec]) -> DeadLetters | None:
        if self.dead_letter is None:
            return None
        return DeadLetters(sql, self.dead_letter, columns=columns, group=self.group, cap=self.cap)

    @property
    def parks(self) -> bool:
        return self.spec.has(Role.ERROR)

    @property
    def group(self) -> str | None:
        """The one that the queue reads; None where each group is a line."""
        line = self.spec.fifo_column
        return GROUP if self.spec.has(Role.GROUP) and (line is None or line.role is not Role.GROUP) else None

    @property
    def keys(self) -> list[str | None]:
        """What stands in the rows' column of lines, or of locks."""
        if self.spec.has(Role.PARTITION_KEY):
            return [None, "a", "b"]
        return ["a", "b"] if self.spec.fifo_column else [None]


def form(
    name: str,
    *roles: Role,
    cap: int | None = None,
    line: Role | None = None,
    lock: "str | AdvisoryLock | None" = None,
    dead: bool = False,
) -> Form:
    """`dead`: with another table for its dead letters."""
    clock = ManualClock()
    columns = [
        ColumnSpec(field="id", type=int, role=Role.ID, generated=True),
        *(
            ColumnSpec(field=role.value, type=TYPES[role][0], optional=TYPES[role][1], role=role, fifo=role is line)
            for role in ([line, *roles] if line else roles)
        ),
        ColumnSpec(field="payload", type=bytes, role=Role.PAYLOAD),
    ]
    spec = TableSpec(name=name, columns=columns, clock=clock, advisory_lock=lock)
    return Form(spec, clock, cap, dead_table(f"dead_{name}") if dead else None)


def dead_table(name: str) -> TableSpec:
    """Keeps the ids, and takes what it finds; a moment of its own, and a count."""
    return TableSpec(
        name=name,
        columns=[
            ColumnSpec(field="id", type=int, role=Role.ID),
            ColumnSpec(field="again_at", type=datetime, role=Role.RETRY_AFTER),
            ColumnSpec(field="tries", type=int, role=Role.ATTEMPT),
            ColumnSpec(field="locked_until", type=datetime, optional=True, role=Role.LEASE),
            ColumnSpec(field="partition_key", type=str, optional=True),
            ColumnSpec(field="body", type=bytes, role=Role.PAYLOAD),
        ],
    )


#: Every role that a count and its end need, beside the strategy's own.
COUNTED = (Role.RETRY_AFTER, Role.ATTEMPT, Role.PROCESSED_AT, Role.ERROR)
RANKED = (Role.PRIORITY, *COUNTED)

BY_LEASE = [
    form("bare", Role.LEASE),
    form("delayed", Role.LEASE, Role.RETRY_AFTER, Role.ATTEMPT, Role.RUNNING),
    form("counted", Role.LEASE, Role.ATTEMPT, Role.ERROR, cap=1, dead=True),
    form("whole", Role.LEASE, *RANKED, Role.RUNNING, cap=2),
    form("lines", Role.LEASE, line=Role.PARTITION_KEY, dead=True),
    form("ranked_lines", Role.LEASE, *RANKED, Role.RUNNING, Role.GROUP, line=Role.PARTITION_KEY, cap=2),
    form("group_lines", Role.LEASE, *COUNTED, line=Role.GROUP, cap=1),
]

BY_ROW_LOCK = [
    form("row_bare", dead=True),
    form("row_counted", *COUNTED, cap=1),
    form("row_whole", *RANKED, cap=2),
    form("row_lines", Role.ATTEMPT, line=Role.PARTITION_KEY),
    form("row_ranked_lines", *RANKED, Role.GROUP, line=Role.PARTITION_KEY, cap=2),
    form("row_group_lines", *COUNTED, line=Role.GROUP, cap=1, dead=True),
]


def by_advisory_lock(prefix: str, **functions: Any) -> list[Form]:
    def lock(template: str) -> AdvisoryLock:
        return AdvisoryLock(template, **functions)

    return [
        form(f"{prefix}_bare", lock=lock("jobs-{id}")),
        form(f"{prefix}_counted", *COUNTED, Role.RUNNING, cap=1, lock=lock("jobs-{id}"), dead=True),
        form(f"{prefix}_by_key", *RANKED, Role.PARTITION_KEY, Role.GROUP, cap=2, lock=lock("keys-{partition_key}")),
    ]


def declare(broker: Broker, form: Form) -> None:
    broker.queue(form.spec, group=form.group)
    if form.dead is not None:
        broker.queue(form.dead)
    broker.create_tables()


class Others:
    """Another program's connection."""

    def __init__(self, database: Database) -> None:
        self.kind = database.kind
        self._connection = database.connect()

    def ask(self, sql: str, *params: object) -> list[tuple[Any, ...]]:
        sql = psycopg_placeholders(sql) if self.kind == "postgres" else sql
        cursor = self._connection.execute(sql, params)
        return cursor.fetchall() if cursor.description else []
