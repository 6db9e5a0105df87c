"""Which declared column types hold what a role needs. SQLite converts by affinity, silently, so it is checked here."""

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlqueue.dialect import ColumnFacts
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec
from sqlqueue_sqlite.values import is_a, is_moment, is_number, kind_of

INTEGER, TEXT, BLOB, REAL, NUMERIC = "INTEGER", "TEXT", "BLOB", "REAL", "NUMERIC"

# In the order in which SQLite looks, https://www.sqlite.org/datatype3.html
_AFFINITIES = (
    (("int",), INTEGER),
    (("char", "clob", "text"), TEXT),
    (("blob",), BLOB),
    (("real", "floa", "doub"), REAL),
)


def affinity(type: str) -> str:
    """What SQLite makes of values in a column of this declared type."""
    for words, found in _AFFINITIES:
        if any(word in type for word in words):
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
