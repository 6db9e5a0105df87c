"""The table of records: what its declaration must say, and what we recommend."""

from typing import Any
from uuid import UUID

import attrs

from sqlqueue.dialect import Dialect
from sqlqueue.errors import DeclarationError
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.spec import TableSpec, default_of

#: What there must be, as it is written.
NEEDED = {
    Role.GROUP: "name: str = column.group(), for where a message is sent to",
    Role.PAYLOAD: "payload: bytes = column.payload()",
}

#: The types whose values come back as they were sent.
FAITHFUL = {Role.PAYLOAD: (bytes, str), Role.PARTITION_KEY: (str,)}


def check_declared(spec: TableSpec) -> None:
    """`DeclarationError` where a table cannot keep what is published."""
    where = f"table {spec.full_name!r} of records"
    for role, mend in NEEDED.items():
        if not spec.has(role):
            raise DeclarationError(f"{where}: no column plays the role {role.value!r}; add {mend}")
    for role, kinds in FAITHFUL.items():
        column = spec.role(role)
        if column is not None and column.type not in kinds:
            shown = " or ".join(kind.__name__ for kind in kinds)
            raise DeclarationError(
                f"{where}: column {column.field!r} plays the role {role.value!r} and must come back as it was sent; "
                f"declare it as {shown}"
            )
    if spec.id.type is Any:
        raise DeclarationError(f"{where}: declare the type of its id {spec.id.field!r}: int, str, UUID or bytes")
    if not spec.id.generated and not makes_id(spec) and default_of(spec.id) is attrs.NOTHING:
        raise DeclarationError(
            f"{where}: its id {spec.id.field!r} has no value of its own; declare it as generated, as in id: int = "
            "column.id(generated=True), or as UUID"
        )
    for column in spec.columns:
        if column.role is None and not column.generated and default_of(column) is attrs.NOTHING:
            raise DeclarationError(
                f"{where}: column {column.field!r} has no default, and nothing of a message goes there; give it one, "
                "or declare it as generated"
            )


def makes_id(spec: TableSpec) -> bool:
    """Whether a record's id is made here."""
    return spec.id.type is UUID and not spec.id.generated and default_of(spec.id) is attrs.NOTHING


def ddl_statements(dialect: Dialect, spec: TableSpec) -> list[str]:
    """The table; where processed records are kept, an index of the others by id, and one of them by when that was."""
    statements = list(dialect.create_table(spec))
    if spec.has(Role.PROCESSED_AT):
        sql = QueueSQL(dialect, spec, grouped=False)
        processed_at = sql.bare(Role.PROCESSED_AT)
        statements.append(dialect.create_index(spec, [sql.bare(Role.ID)], f"{processed_at} IS NULL"))
        statements.append(dialect.create_index(spec, [processed_at], f"{processed_at} IS NOT NULL"))
    return statements
