"""Where dead letters go: to another group of their table, or to another table with columns that match."""

from collections.abc import Sequence
from typing import Any, get_origin

import attrs

from sqlqueue.errors import DeclarationError
from sqlqueue.roles import AFRESH, Role
from sqlqueue.spec import ColumnSpec, TableSpec, default_of, makes_default

#: Types of which one holds the other's values.
NUMBERS = (int, float)


@attrs.frozen
class Destination:
    """The table that dead letters go to, and the group that they get there (None: each keeps its own)."""

    spec: TableSpec
    group: str | None = None

    @property
    def name(self) -> str:
        """The name of the queue that reads them."""
        return self.spec.full_name if self.group is None else f"{self.spec.full_name}[{self.group}]"

    def is_in(self, table: TableSpec) -> bool:
        """Whether the row stays in its table."""
        return self.spec.full_name == table.full_name


@attrs.frozen
class Match:
    """A column of the table that a row moves into, and the row's own column whose value it takes. No own column: the
    value is new, or the column's default."""

    column: ColumnSpec
    source: ColumnSpec | None

    @property
    def may_lack(self) -> bool:
        """Whether the row's own value may be NULL, which the column does not take."""
        own = self.source
        return own is not None and own.optional and own.role is not Role.ID and not self.column.optional


def matches(source: TableSpec, destination: Destination) -> Sequence[Match]:
    """The columns that a move names, matched by role, then by name. The database fills the others.

    Raises `DeclarationError` where the payload has no column, where two matching columns hold different types, and
    where only the row's own column takes NULL.
    """
    found = [
        Match(column, own)
        for column in destination.spec.columns
        if not column.generated
        for own in [_source_of(column, source, destination)]
        if own is not None or _has_own_value(column, destination)
    ]
    for match in found:
        if match.source is not None:
            _check_types(source, destination, match.column, match.source)
            _check_null(source, destination, match, match.source)
    payload = source.role(Role.PAYLOAD)
    if payload is not None and not any(match.source is payload for match in found):
        raise DeclarationError(
            f"table {source.name!r}: its dead letters go into table {destination.spec.full_name!r}, which has no "
            f"column for the payload {payload.name!r}; mark one with column.payload()"
        )
    return found


def check_apart(source: TableSpec, group: str | None, destination: Destination) -> None:
    """Raise `DeclarationError` where the queue itself would read its dead letters."""
    if not destination.is_in(source):
        return
    where = f"table {source.name!r}: dead_letter={destination.group or source.name!r}"
    if destination.group in (None, group):
        raise DeclarationError(f"{where} is what the queue itself reads; name another group, or another table")
    if group is None:
        raise DeclarationError(
            f"{where} is a group that the queue reads as well, since it reads all of them; give the queue one group: "
            "broker.queue(…, group=…)"
        )


def _source_of(column: ColumnSpec, source: TableSpec, destination: Destination) -> ColumnSpec | None:
    if column.role in AFRESH or (column.role is Role.GROUP and destination.group is not None):
        return None
    by_role = None if column.role is None else source.role(column.role)
    return by_role or next((own for own in source.columns if own.name == column.name), None)


def _has_own_value(column: ColumnSpec, destination: Destination) -> bool:
    if column.role is Role.GROUP:
        return destination.group is not None
    if column.role in AFRESH:
        return is_set_afresh(column)
    return has_default(column)


def is_set_afresh(column: ColumnSpec) -> bool:
    """Whether a move sets the column of a role that begins anew; else the column is left NULL."""
    said = column.role and column.role.fact.writes.dead_letter
    return said not in (None, "NULL") and not (said == "{now}" and column.optional)


def has_default(column: ColumnSpec) -> bool:
    """Whether its declaration gives it a value."""
    return makes_default(column) or default_of(column) not in (None, attrs.NOTHING)


def _check_types(source: TableSpec, destination: Destination, theirs: ColumnSpec, own: ColumnSpec) -> None:
    if _alike(theirs.type, own.type):
        return
    raise DeclarationError(
        f"table {source.name!r}: its dead letters go into table {destination.spec.full_name!r}, whose column "
        f"{theirs.name!r} is declared as {_named(theirs.type)} and takes the values of {own.name!r}, which is declared "
        f"as {_named(own.type)}; declare both alike"
    )


def _check_null(source: TableSpec, destination: Destination, match: Match, own: ColumnSpec) -> None:
    theirs = match.column
    if not match.may_lack or has_default(theirs):
        return
    raise DeclarationError(
        f"table {source.name!r}: its dead letters go into table {destination.spec.full_name!r}, whose column "
        f"{theirs.name!r} takes no NULL and the values of {own.name!r}, which may be NULL; declare it as "
        f"{_named(theirs.type)} | None, or give it a default"
    )


def _alike(one: Any, other: Any) -> bool:
    one, other = get_origin(one) or one, get_origin(other) or other
    if Any in (one, other) or not isinstance(one, type) or not isinstance(other, type):
        return True
    return issubclass(one, other) or issubclass(other, one) or (one in NUMBERS and other in NUMBERS)


def _named(kind: Any) -> str:
    return str(getattr(kind, "__name__", kind))
