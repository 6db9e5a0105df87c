"""The table of tasks: pg_task's, and a lease beside it."""

from datetime import datetime
from uuid import UUID

from sqlqueue.errors import DeclarationError
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, TableSpec

#: What a queue of tasks cannot do without.
NEEDED = (Role.PAYLOAD, Role.RETRY_AFTER, Role.ATTEMPT, Role.RUNNING, Role.ERROR, Role.LEASE)

#: What it does not look at: no task would be in a group, wait for its key, or be kept once it is done.
REFUSED = (Role.GROUP, Role.PARTITION_KEY, Role.PROCESSED_AT)


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
