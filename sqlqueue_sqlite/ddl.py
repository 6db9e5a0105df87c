"""The recommended table, in SQL that people can keep in their migrations, and what another table's columns can hold.

SQLite converts by affinity, silently, so that is checked here.
"""

import zlib
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

from sqlqueue.dialect import ColumnFacts, Dialect
from sqlqueue.roles import NOW, Role
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import fill
from sqlqueue_sqlite.fragments import now
from sqlqueue_sqlite.values import is_a, is_moment, is_number, kind_of

CREATE_TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
  {columns}
)
"""

ADD_COLUMN = "ALTER TABLE {table} ADD COLUMN {definition}"

CREATE_INDEX = "CREATE INDEX IF NOT EXISTS {index} ON {table} ({keys})"

PARTIAL = "{create}\nWHERE {where}"

# AUTOINCREMENT: without it the highest id, once deleted, is given to a row that came later.
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
    parts = [_type(column)]
    if not column.optional:
        parts.append("NOT NULL")
    default = _default(column)
    return parts if default is None else [*parts, "DEFAULT", default]


def _type(column: ColumnSpec) -> str:
    for kinds, type in _TYPES:
        if is_a(column, *kinds):
            return type
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


# -- what other tables' columns hold -------------------------------------------------------------------------

INTEGER, TEXT, BLOB, REAL, NUMERIC = "INTEGER", "TEXT", "BLOB", "REAL", "NUMERIC"

# In SQLite's own order, https://www.sqlite.org/datatype3.html
_AFFINITIES = (
    (("int",), INTEGER),
    (("char", "clob", "text"), TEXT),
    (("blob",), BLOB),
    (("real", "floa", "doub"), REAL),
)


def affinity(type: str) -> str:
    """What SQLite makes of values in a column of this declared type."""
    for marks, found in _AFFINITIES:
        if any(mark in type for mark in marks):
            return found
    return NUMERIC if type else BLOB


def misfit(column: ColumnSpec, facts: ColumnFacts) -> str | None:
    """Why the database's column cannot hold the declared one and how to mend it; None where it can."""
    if column.role is None:
        return None
    found = affinity(facts.type)
    return _misfit_of_null(column, facts) or _misfit_of_id(column, facts) or _misfit_of_type(column, facts, found)


def _misfit_of_null(column: ColumnSpec, facts: ColumnFacts) -> str | None:
    if column.role and column.role.fact.starts_null and not facts.nullable:
        return f"it is NOT NULL, but the role {column.role.value!r} is NULL at first; drop the NOT NULL"
    return None


def _misfit_of_id(column: ColumnSpec, facts: ColumnFacts) -> str | None:
    if column.role is Role.ID and column.generated and not facts.has_default:
        return (
            f"it is declared {_name(facts)} without a default, so SQLite does not generate it; make it INTEGER "
            "PRIMARY KEY, give it a DEFAULT, or declare column.id() without generated=True"
        )
    return None


def _misfit_of_type(column: ColumnSpec, facts: ColumnFacts, found: str) -> str | None:
    wrong, better = _wrong_for(column)
    if found not in wrong:
        return None
    return (
        f"its type {_name(facts)} has {found} affinity, which cannot hold {_kind(column)} for the role "
        f"{column.role.value if column.role else ''!r}; make it {better}{_other_mend(column)}"
    )


def _wrong_for(column: ColumnSpec) -> tuple[tuple[str, ...], str]:
    """The affinities that cannot hold the column, and a type that can."""
    if is_moment(column) and not is_number(column):
        return (INTEGER, REAL), TEXT
    if is_a(column, int, float):
        return (TEXT,), INTEGER if is_a(column, int) else REAL
    if is_a(column, str):
        verbatim = column.role is not None and column.role.fact.verbatim  # '007' is not 7
        return (INTEGER, REAL, NUMERIC) if verbatim else (INTEGER, REAL), TEXT
    if is_a(column, UUID, dict, list) or column.role is Role.HEADERS:
        return (INTEGER, REAL), TEXT
    return (), BLOB


def _other_mend(column: ColumnSpec) -> str:
    if is_moment(column):
        if is_a(column, datetime):
            return ", or declare the column as int or float, which is seconds since the epoch"
        return ", or declare the column as datetime"
    return ""


def _kind(column: ColumnSpec) -> str:
    kind: Any = kind_of(column)
    return str(getattr(kind, "__name__", kind))


def _name(facts: ColumnFacts) -> str:
    return facts.type.upper() or "without a type"
