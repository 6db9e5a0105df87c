"""Declare: an attrs class with marked fields becomes a `TableSpec`, its objects the table's rows."""

import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NewType, TypeVar, Union, get_args, get_origin, get_type_hints

import attrs

from sqlqueue import column
from sqlqueue.clock import ClockSource, HostClock
from sqlqueue.column import MARK, Mark
from sqlqueue.errors import DeclarationError
from sqlqueue.spec import SPEC_ATTRIBUTE, AdvisoryLock, ColumnSpec, TableSpec

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
elif sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        return lambda decorated: decorated


T = TypeVar("T")


def _unwrap_optional(annotation: Any) -> tuple[Any, bool]:
    """A column's type without None and without NewType's names, and whether it may be None."""
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        optional = len(members) < len(get_args(annotation))
        return (_plain(members[0]) if len(members) == 1 else Any), optional
    return _plain(annotation), annotation is Any


def _plain(annotation: Any) -> Any:
    while isinstance(annotation, NewType):
        annotation = annotation.__supertype__
    return annotation


def _column_spec(attribute: "attrs.Attribute[Any]", annotation: Any) -> ColumnSpec:
    mark: Mark | None = attribute.metadata.get(MARK)
    kind, optional = _unwrap_optional(annotation)
    return ColumnSpec(
        field=attribute.name,
        name=attribute.name if mark is None or mark.name is None else mark.name,
        type=kind,
        optional=optional,
        role=mark.role if mark else None,
        generated=mark.generated if mark else False,
        fifo=mark.fifo if mark else False,
        default=attribute.default,
    )


# The other markers have a default of their own. A type checker that is not told that they specify fields takes their
# call for the field's default, so that a row being built need not name it.
@dataclass_transform(kw_only_default=True, field_specifiers=(attrs.field, column.id, column.group, column.payload))
def table(
    name: str,
    *,
    schema: str | None = None,
    advisory_lock: str | AdvisoryLock | None = None,
    clock: ClockSource = HostClock(),  # noqa: B008 - frozen
    isolation: str | None = None,
) -> Callable[[type[T]], type[T]]:
    """Make a class with annotated fields the description of table `name`, and its objects the table's rows.

    The fields are the table's columns; `column.<role>()` marks what a column does for the queue, a field
    without a mark is a plain data column. Rows are keyword-only attrs objects.

    `schema`: the table's schema, else the connection's search path decides. `advisory_lock`: the template of the key
    that holds a row by an advisory lock, or an `AdvisoryLock`. `clock`: where *now* comes from. `isolation`: the level
    of a row lock's claim and of a transactional handler.

    Raises `DeclarationError` for every mistake that can be seen without the database.
    """

    if not isinstance(name, str):
        raise DeclarationError(f"@table is given {name!r}; give the table's name: @table('its_name')")

    def declare(cls: type[T]) -> type[T]:
        try:
            # Without auto_attribs, one mark without an annotation would drop all fields that have no mark.
            row_class = attrs.define(cls, kw_only=True, slots=True, auto_attribs=True)
        except attrs.exceptions.UnannotatedAttributeError as error:
            raise DeclarationError(f"table {name!r}: {error} Annotate each column with its type") from None
        try:
            annotations = get_type_hints(row_class)
        except NameError as error:
            raise DeclarationError(
                f"table {name!r}: an annotation names {error.name!r}, which is not known in the class's module; "
                "import it there"
            ) from error
        attributes: tuple[attrs.Attribute[Any], ...] = attrs.fields(row_class)  # type: ignore[arg-type]
        spec = TableSpec(
            name=name,
            schema=schema,
            columns=tuple(_column_spec(attribute, annotations.get(attribute.name, Any)) for attribute in attributes),
            advisory_lock=advisory_lock,
            clock=clock,
            isolation=isolation,
            row_class=row_class,
        )
        setattr(row_class, SPEC_ATTRIBUTE, spec)
        return row_class

    return declare
