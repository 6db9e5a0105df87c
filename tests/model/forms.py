"""The forms of tables that the model of the queue knows, and another program that writes to them."""

from datetime import datetime
from typing import Any

import attrs

from sqlqueue import AdvisoryLock, Broker, ColumnSpec, Role, TableSpec
from sqlqueue.testing import ManualClock
from tests.support.database import Database, psycopg_placeholders

#: The group that the queue reads, where the table has groups; rows of another one are nobody's business.
GROUP, ANOTHER = "jobs", "others"

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
    """A table with some of the roles, and the clock that it is worked by."""

    spec: TableSpec
    clock: ManualClock
    cap: int | None

    @property
    def parks(self) -> bool:
        return self.spec.has(Role.ERROR)

    @property
    def group(self) -> str | None:
        """The one that the queue reads; None where each group is a line."""
        line = self.spec.line
        return GROUP if self.spec.has(Role.GROUP) and (line is None or line.role is not Role.GROUP) else None

    @property
    def keys(self) -> list[str | None]:
        """What stands in the rows' column of lines, or of locks."""
        if self.spec.has(Role.PARTITION_KEY):
            return [None, "a", "b"]
        return ["a", "b"] if self.spec.line else [None]


def form(
    name: str,
    *roles: Role,
    cap: int | None = None,
    line: Role | None = None,
    lock: "str | AdvisoryLock | None" = None,
) -> Form:
    clock = ManualClock()
    columns = [
        ColumnSpec(field="id", type=int, role=Role.ID, generated=True),
        *(
            ColumnSpec(field=role.value, type=TYPES[role][0], optional=TYPES[role][1], role=role, fifo=role is line)
            for role in ([line, *roles] if line else roles)
        ),
        ColumnSpec(field="payload", type=bytes, role=Role.PAYLOAD),
    ]
    return Form(TableSpec(name=name, columns=columns, clock=clock, advisory_lock=lock), clock, cap)


#: Every role that a count and its end need, beside the strategy's own.
COUNTED = (Role.RETRY_AFTER, Role.ATTEMPT, Role.PROCESSED_AT, Role.ERROR)
RANKED = (Role.PRIORITY, *COUNTED)

BY_LEASE = [
    form("bare", Role.LEASE),
    form("delayed", Role.LEASE, Role.RETRY_AFTER, Role.ATTEMPT, Role.RUNNING),
    form("counted", Role.LEASE, Role.ATTEMPT, Role.ERROR, cap=1),
    form("whole", Role.LEASE, *RANKED, Role.RUNNING, cap=2),
    form("lines", Role.LEASE, line=Role.PARTITION_KEY),
    form("ranked_lines", Role.LEASE, *RANKED, Role.RUNNING, Role.GROUP, line=Role.PARTITION_KEY, cap=2),
    form("group_lines", Role.LEASE, *COUNTED, line=Role.GROUP, cap=1),
]

BY_ROW_LOCK = [
    form("row_bare"),
    form("row_counted", *COUNTED, cap=1),
    form("row_whole", *RANKED, cap=2),
    form("row_lines", Role.ATTEMPT, line=Role.PARTITION_KEY),
    form("row_ranked_lines", *RANKED, Role.GROUP, line=Role.PARTITION_KEY, cap=2),
    form("row_group_lines", *COUNTED, line=Role.GROUP, cap=1),
]


def by_advisory_lock(prefix: str, **functions: Any) -> list[Form]:
    def lock(template: str) -> AdvisoryLock:
        return AdvisoryLock(template, **functions)

    return [
        form(f"{prefix}_bare", lock=lock("jobs-{id}")),
        form(f"{prefix}_counted", *COUNTED, Role.RUNNING, cap=1, lock=lock("jobs-{id}")),
        form(f"{prefix}_by_key", *RANKED, Role.PARTITION_KEY, cap=2, lock=lock("keys-{partition_key}")),
    ]


def declare(broker: Broker, form: Form) -> None:
    broker.queue(form.spec, group=form.group)
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
