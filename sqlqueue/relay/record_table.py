"""The table of records: what its declaration says, what we recommend, and how ids and destinations are written."""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import attrs

from sqlqueue.dialect import Dialect
from sqlqueue.errors import DeclarationError
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, TableSpec, default_of

#: What there must be, as it is written.
NEEDED = {
    Role.GROUP: "name: str = column.group(), for where a message is sent to",
    Role.PAYLOAD: "payload: bytes = column.payload()",
}

#: The types whose values come back as they were sent.
FAITHFUL = {Role.PAYLOAD: (bytes, str), Role.PARTITION_KEY: (str,)}

#: What every database holds in a whole number.
LARGEST = 2**63 - 1


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


# -- a record's id, as a message carries it -----------------------------------------------------------------------


def to_text(id: Any) -> str:
    """The id as text: bytes in hexadecimal digits, everything else as Python writes it."""
    return id.hex() if isinstance(id, bytes) else str(id)


def from_text(column: ColumnSpec, text: str) -> Any:
    """The id that `to_text` wrote, as the declared type has it; anything else is a `ValueError`.

    What no database takes, such as a number of a hundred digits, is refused here: the message is somebody else's, and
    asking for its record would fail each time.
    """
    if issubclass(column.type, str):
        if "\0" in text:
            raise ValueError(f"{text!r:.100} holds a NUL")
        text.encode()
        return text
    id: Any
    if issubclass(column.type, int):
        id = int(text) if len(text) < 20 else LARGEST + 1
        if abs(id) > LARGEST:
            raise ValueError(f"{text!r:.100} is too large")
    else:
        id = UUID(text) if issubclass(column.type, UUID) else bytes.fromhex(text)
    if to_text(id) != text.lower():
        raise ValueError(f"{text!r:.100} is not as an id of column {column.name!r} is written")
    return id


# -- destinations -------------------------------------------------------------------------------------------------


def _as_names(given: "Iterable[str] | str | None") -> frozenset[str] | None:
    if given is None:
        return None
    names = frozenset([given] if isinstance(given, str) else given)
    for name in names:
        if not isinstance(name, str):
            raise DeclarationError(f"names={given!r} holds {name!r}; give destinations as text")
    return names


@attrs.frozen
class Names:
    """The destinations that are tracked; None stands for all of them, those of messages that name none included."""

    listed: frozenset[str] | None = attrs.field(default=None, converter=_as_names)

    def __contains__(self, name: Any) -> bool:
        return self.listed is None or name in self.listed

    def only(self, given: "Iterable[str] | str | None") -> frozenset[str] | None:
        """Those of them that are `given`, all where that is None; `DeclarationError` for one that is none of them."""
        asked = _as_names(given)
        if asked is None:
            return self.listed
        unknown = sorted(name for name in asked if name not in self)
        if unknown:
            raise DeclarationError(
                f"names={given!r}: {unknown[0]!r} is not tracked; tracked are {sorted(self.listed or ())}"
            )
        return asked
