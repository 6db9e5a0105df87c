"""The forms of tables that the model of the queue knows, and another program that writes to them."""

from datetime import datetime
from typing import Any

import attrs

from sqlqueue import ColumnSpec, Role, TableSpec
from sqlqueue.testing import ManualClock
from tests.support.database import Database, psycopg_placeholders


@attrs.frozen
class Form:
    """A table with some of the roles, and the clock that it is worked by."""

    spec: TableSpec
    clock: ManualClock
    cap: int | None

    @property
    def parks(self) -> bool:
        return self.spec.has(Role.ERROR)


def form(name: str, *roles: Role, cap: int | None = None) -> Form:
    clock = ManualClock()
    types: dict[Role, tuple[Any, bool]] = {
        Role.PRIORITY: (int, False),
        Role.RETRY_AFTER: (datetime, True),
        Role.ATTEMPT: (int, True),
        Role.PROCESSED_AT: (datetime, True),
        Role.LEASE: (datetime, True),
        Role.ERROR: (str, True),
        Role.RUNNING: (bool, False),
    }
    columns = [
        ColumnSpec(field="id", type=int, role=Role.ID, generated=True),
        *(
            ColumnSpec(field=role.value, type=types[role][0], optional=types[role][1], role=role)
            for role in (Role.LEASE, *roles)
        ),
        ColumnSpec(field="payload", type=bytes, role=Role.PAYLOAD),
    ]
    return Form(TableSpec(name=name, columns=columns, clock=clock), clock, cap)


FORMS = [
    form("bare"),
    form("delayed", Role.RETRY_AFTER, Role.ATTEMPT, Role.RUNNING),
    form("counted", Role.ATTEMPT, Role.ERROR, cap=1),
    form(
        "whole",
        Role.PRIORITY,
        Role.RETRY_AFTER,
        Role.ATTEMPT,
        Role.PROCESSED_AT,
        Role.ERROR,
        Role.RUNNING,
        cap=2,
    ),
]


class Others:
    """Another program's connection."""

    def __init__(self, database: Database) -> None:
        self.kind = database.kind
        self._connection = database.connect()

    def ask(self, sql: str, *params: object) -> list[tuple[Any, ...]]:
        sql = psycopg_placeholders(sql) if self.kind == "postgres" else sql
        cursor = self._connection.execute(sql, params)
        return cursor.fetchall() if cursor.description else []
