"""The recommended table, in SQL that people can read and keep in their migrations."""

import zlib
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from uuid import UUID

from sqlqueue.dialect import Dialect
from sqlqueue.roles import NOW, Role
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import fill
from sqlqueue_sqlite.fragments import now
from sqlqueue_sqlite.values import is_a, is_moment

CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
  {columns}
)
"""

ADD_COLUMN = "ALTER TABLE {table} ADD COLUMN {definition}"

CREATE_INDEX = "CREATE INDEX IF NOT EXISTS {index} ON {table} ({keys})"

PARTIAL = "{create}\nWHERE {where}"

# AUTOINCREMENT: without it the highest id, once deleted, is given out again, to a row that came later.
GENERATED_ID = "INTEGER PRIMARY KEY AUTOINCREMENT"

# A random UUID of version 4 (RFC 9562, section 5.4): `4`, and one of 8, 9, a and b, stand at their places.
GENERATED_UUID = """
(lower(
    hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-' ||
    substr('89AB', (random() & 3) + 1, 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))
))
"""

# bool before int, whose subclass it is, and datetime with date.
_TYPES: tuple[tuple[tuple[type, ...], str], ...] = (
    ((bool, int), "INTEGER"),
    ((float,), "REAL"),
    ((bytes,), "BLOB"),
    ((str, UUID, datetime, date, Decimal, dict, list), "TEXT"),
)


def create_table(dialect: Dialect, spec: TableSpec) -> tuple[str, ...]:
    """CREATE TABLE IF NOT EXISTS; the claim's index is composed elsewhere."""
    columns = [" ".join([dialect.quote(column.name), *_definition(column)]) for column in spec.columns]
    return (fill(CREATE_TABLE, {"table": dialect.table(spec), "columns": ",\n".join(columns)}),)


def add_column(dialect: Dialect, spec: TableSpec, column: ColumnSpec) -> str:
    definition = " ".join([dialect.quote(column.name), *_definition(column)])
    return fill(ADD_COLUMN, {"table": dialect.table(spec), "definition": definition})


def create_index(dialect: Dialect, spec: TableSpec, keys: Sequence[str], where: str) -> str:
    """CREATE INDEX IF NOT EXISTS; the name tells different indexes of one table apart."""
    mark = zlib.crc32("\n".join([*keys, where]).encode())
    name = dialect.quote(f"{spec.name}_claim_{mark:08x}")
    create = fill(
        CREATE_INDEX,
        {
            "index": f"{dialect.quote(spec.schema)}.{name}" if spec.schema else name,
            "table": dialect.quote(spec.name),  # the index's schema is the table's
            "keys": ", ".join(keys),
        },
    )
    return fill(PARTIAL, {"create": create, "where": where}) if where else create


def _definition(column: ColumnSpec) -> list[str]:
    if column.role is Role.ID:
        if column.generated and is_a(column, int):
            return [GENERATED_ID]
        by_default = ["DEFAULT", GENERATED_UUID.strip()] if column.generated and is_a(column, UUID) else []
        return [_type(column), "NOT NULL PRIMARY KEY", *by_default]
    words = [_type(column)]
    if not column.optional:
        words.append("NOT NULL")
    default = _default(column)
    return words if default is None else [*words, "DEFAULT", default]


def _type(column: ColumnSpec) -> str:
    for kinds, word in _TYPES:
        if is_a(column, *kinds):
            return word
    if is_moment(column) or column.role is Role.HEADERS:
        return "TEXT"
    return "BLOB"  # any value, kept as it is


def _default(column: ColumnSpec) -> str | None:
    """What producers with plain SQL need not name."""
    if column.optional:
        return None
    if column.role is None:
        return f"({now(column)})" if column.generated and is_moment(column) else None
    given = column.role.fact.ddl
    if given is NOW:
        return f"({now(column)})"
    return None if given is None else str(int(given))
