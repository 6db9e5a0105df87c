"""Declare: what a table is to the queue, and what an advisory lock is. Every mistake that shows without the database
raises here."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_origin

import attrs

from sqlqueue.clock import Clock, ClockSource, DatabaseClock, HostClock
from sqlqueue.errors import DeclarationError
from sqlqueue.roles import FIFO_ROLES, Role

_FIELDS = re.compile(r"\{([^{}]*)\}")

#: Takes the driver's connection that serves the delivery, and the key.
LockFunction = Callable[[Any, str], bool]


@attrs.frozen
class AdvisoryLock:
    """A lock on each row's key holds the row. Rows that share a key run one at a time, over all instances.

    `template`: the key, with fields of the table in braces, such as `"accounts-{account}"`. NULL reads as an empty
    text. `shared`: the key is the template's text alone, so that other tables and other programs can take the same
    lock; else the key begins with the table's name. `lock`, `unlock`: functions of the user's, for locks of another
    system. Both are called as `f(connection, key)` from the consumer's threads, with the driver's connection that
    serves the delivery. `lock` does not wait. Each returns whether it took the lock, or let it go.

    A template without fields is one key for all rows: one row is in work at a time.

    Raises `DeclarationError` for what is no template, and for one function without the other.
    """

    template: str
    shared: bool = False
    lock: LockFunction | None = None
    unlock: LockFunction | None = None

    def __attrs_post_init__(self) -> None:
        where = f"advisory_lock={self.template!r}"
        if type(self.template) is not str or not self.template:
            raise DeclarationError(f"{where}: give the key's template, such as 'jobs-{{id}}'")
        functions = (self.lock, self.unlock)
        if functions != (None, None) and not all(callable(one) for one in functions):
            raise DeclarationError(
                f"{where}: lock={self.lock!r}, unlock={self.unlock!r}; give two functions "
                "f(connection, key) -> bool, or neither"
            )

    @property
    def fields(self) -> Sequence[str]:
        """The fields that the template names, in order."""
        return tuple(_FIELDS.findall(self.template))

    @property
    def readable(self) -> bool:
        """Whether each brace has its partner."""
        return not set(_FIELDS.sub("", self.template)) & set("{}")

    @property
    def texts(self) -> Sequence[str]:
        """The texts before, between and after the fields: one more than there are fields."""
        return tuple(_FIELDS.split(self.template)[::2])


def advisory_lock(given: "str | AdvisoryLock | None") -> AdvisoryLock | None:
    """The declared lock; a text is its template."""
    return given if given is None or isinstance(given, AdvisoryLock) else AdvisoryLock(given)


#: Where a class made by `@table` keeps its description.
SPEC_ATTRIBUTE = "__sqlqueue_table__"

ISOLATION_LEVELS = ("READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE")

#: The names that a field may have. Our statements use the name for the field's value.
_FIELD = re.compile(r"[^\W\d]\w*")


@attrs.frozen(kw_only=True)
class ColumnSpec:
    """One column: the row's field, the column's name, its Python type (without None) and its role."""

    field: str
    name: str = attrs.field()
    type: Any = Any
    optional: bool = False
    role: Role | None = None
    generated: bool = False
    fifo: bool = False
    default: Any = attrs.Factory(lambda: attrs.NOTHING)

    @name.default
    def _name(self) -> str:
        return self.field


def _columns(columns: Iterable[ColumnSpec]) -> tuple[ColumnSpec, ...]:
    return tuple(columns)


@attrs.frozen(kw_only=True)
class TableSpec:
    """A table as the queue sees it.

    `name`, `schema` and the columns' names are taken as they are and quoted in every statement. `advisory_lock` is an
    `AdvisoryLock` or a key's template. Built by hand, its rows are mappings from field to value. `full_name` is the
    name with its schema where there is one, unquoted: for messages, and as notification channel. Every mistake is a
    `DeclarationError`.
    """

    name: str
    columns: tuple[ColumnSpec, ...] = attrs.field(converter=_columns)
    schema: str | None = None
    advisory_lock: AdvisoryLock | None = attrs.field(default=None, converter=advisory_lock)
    clock: ClockSource = attrs.field(factory=HostClock)
    isolation: str | None = None
    row_class: type | None = None
    full_name: str = attrs.field(init=False, repr=False, eq=False)
    _roles: dict[Role, ColumnSpec] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        _check_names(self)
        roles: dict[Role, ColumnSpec] = {}
        for spec in self.columns:
            if spec.role is None:
                continue
            if spec.role in roles:
                raise DeclarationError(
                    f"table {self.name!r}: columns {roles[spec.role].field!r} and {spec.field!r} both play the role "
                    f"{spec.role.value!r}; leave the role to one of them"
                )
            _check_type(self, spec)
            roles[spec.role] = spec
        object.__setattr__(self, "_roles", roles)
        object.__setattr__(self, "full_name", f"{self.schema}.{self.name}" if self.schema else self.name)
        _check_table(self)

    def role(self, role: Role) -> ColumnSpec | None:
        """The column that plays `role`, or None."""
        return self._roles.get(role)

    def has(self, role: Role) -> bool:
        return role in self._roles

    @property
    def id(self) -> ColumnSpec:
        return self._roles[Role.ID]

    @property
    def fifo_column(self) -> ColumnSpec | None:
        """The column whose values are FIFO keys: one row of each value is in work at a time."""
        return next((spec for spec in self.columns if spec.fifo), None)

    @property
    def host_clock(self) -> Clock:
        """The clock that the host asks: the table's, or the host's own where the table uses the database's."""
        return HostClock() if isinstance(self.clock, DatabaseClock) else self.clock

    def values(self, row: Any) -> Mapping[str, Any]:
        """A row's fields by name, whether the row is an object of the class or a mapping."""
        if self.row_class is not None and isinstance(row, self.row_class):
            # A field with init=False may not be set yet.
            return {spec.field: getattr(row, spec.field) for spec in self.columns if hasattr(row, spec.field)}
        return dict(row)


def _check_names(table: TableSpec) -> None:
    if not table.name or "." in table.name:
        raise DeclarationError(
            f"table name {table.name!r}: give the bare name of one table; a schema goes into schema="
        )
    if table.schema is not None and (not table.schema or "." in table.schema):
        raise DeclarationError(
            f"table {table.name!r}: schema={table.schema!r} is not the name of one schema; give its bare name, or "
            "leave schema= out"
        )
    for name in (table.name, table.schema or "", *(spec.name for spec in table.columns)):
        if not name.isprintable():
            raise DeclarationError(
                f"table {table.name!r}: the name {name!r} holds a character that cannot be printed; rename it"
            )
    _check_fields(table)


def _check_fields(table: TableSpec) -> None:
    fields: set[str] = set()
    names: dict[str, str] = {}
    for spec in table.columns:
        where = f"table {table.name!r}: field {spec.field!r}"
        if not _FIELD.fullmatch(spec.field):
            raise DeclarationError(
                f"{where} is no identifier; give the column's name as name= and call the field otherwise"
            )
        if spec.field in fields:
            raise DeclarationError(f"{where} is described twice; leave out one of the two")
        if not spec.name:
            raise DeclarationError(f"{where} has an empty column name; leave name= out, or give the column's")
        if spec.name in names:
            raise DeclarationError(
                f"{where} and field {names[spec.name]!r} name one column {spec.name!r}; leave out one of the two"
            )
        fields.add(spec.field)
        names[spec.name] = spec.field


def _check_type(table: TableSpec, spec: ColumnSpec) -> None:
    assert spec.role is not None
    allowed = spec.role.fact.types
    if spec.type is Any or not allowed:
        declared = True
    else:
        base = get_origin(spec.type) or spec.type
        declared = isinstance(base, type) and issubclass(base, allowed) and (base is not bool or bool in allowed)
    if not declared:
        names = ", ".join(kind.__name__ for kind in allowed)
        raise DeclarationError(
            f"table {table.name!r}: column {spec.field!r} plays the role {spec.role.value!r} and is declared as "
            f"{getattr(spec.type, '__name__', spec.type)}; declare it as one of: {names}"
        )
    if spec.role.fact.starts_null and spec.type is not Any and not spec.optional:
        name = getattr(spec.type, "__name__", spec.type)
        raise DeclarationError(
            f"table {table.name!r}: column {spec.field!r} plays the role {spec.role.value!r}, which is NULL at "
            f"first; declare it as {name} | None"
        )


def _check_table(table: TableSpec) -> None:
    where = f"table {table.name!r}"
    if not table.has(Role.ID):
        raise DeclarationError(f"{where}: no column plays the role 'id'; mark one with column.id()")
    if isinstance(table.clock, type) or not isinstance(table.clock, Clock | DatabaseClock):
        raise DeclarationError(
            f"{where}: clock={table.clock!r} is no clock; give HostClock(), DatabaseClock(), or an object with a now()"
        )
    lease = table.role(Role.LEASE)
    if isinstance(table.clock, DatabaseClock) and lease is not None:
        raise DeclarationError(
            f"{where}: the lease in column {lease.field!r} is kept by the host's clock, because each settlement names "
            "the expiry that its claim wrote; leave out clock=DatabaseClock(), or the lease column"
        )
    if table.advisory_lock is not None:
        _check_key(table, table.advisory_lock)
    if table.advisory_lock is not None and lease is not None:
        raise DeclarationError(
            f"{where}: column {lease.field!r} is a lease, and advisory_lock={table.advisory_lock.template!r} is given; "
            "a row is held by one of them: leave out the other"
        )
    if table.isolation is not None and table.isolation.upper() not in ISOLATION_LEVELS:
        raise DeclarationError(f"{where}: isolation={table.isolation!r} is none of {', '.join(ISOLATION_LEVELS)}")
    _check_fifo(table, [spec for spec in table.columns if spec.fifo])


def _check_fifo(table: TableSpec, lines: list[ColumnSpec]) -> None:
    if not lines:
        return
    line = lines[0]
    where = f"table {table.name!r}: column {line.field!r} with fifo=True"
    if line.role not in FIFO_ROLES:
        raise DeclarationError(f"{where}: only a group or a partition key makes a line; leave fifo=True out")
    if len(lines) > 1:
        raise DeclarationError(
            f"{where} beside column {lines[1].field!r} with fifo=True; a row stands in one line only: leave out one"
        )
    if table.advisory_lock is not None:
        raise DeclarationError(
            f"{where} beside advisory_lock=; leave fifo=True out and put the field into the key instead, such as "
            f"advisory_lock='{table.name}-{{{line.field}}}'"
        )
    if table.isolation is not None and table.isolation.upper() != ISOLATION_LEVELS[0]:
        raise DeclarationError(
            f"{where} beside isolation={table.isolation!r}; a line is kept by looking twice, which takes "
            f"{ISOLATION_LEVELS[0]}: leave isolation= out"
        )
    for spec in table.columns:
        needed = spec.role.fact.fifo_needs if spec.role else None
        if spec.role and needed and not table.has(needed):
            raise DeclarationError(
                f"{where} is ordered by {spec.role.value} (column {spec.field!r}) and needs an {needed.value} column, "
                f"which keeps a row that has begun at the head; mark one with column.{needed.value}()"
            )


def _check_key(table: TableSpec, lock: AdvisoryLock) -> None:
    where = f"table {table.name!r}: advisory_lock={lock.template!r}"
    if not lock.readable:
        raise DeclarationError(f"{where}: a brace without its partner; write a field as {{field}}")
    fields = {spec.field for spec in table.columns}
    for name in lock.fields:
        if name not in fields:
            raise DeclarationError(f"{where}: {{{name}}} names no field; name one of {', '.join(sorted(fields))}")


def makes_default(spec: ColumnSpec) -> bool:
    """Whether a function makes its default for each row."""
    return isinstance(spec.default, attrs.Factory) and not needs_row(spec)  # type: ignore[arg-type]


def needs_row(spec: ColumnSpec) -> bool:
    """Whether its default depends on the row, so that only the row's class can make it."""
    return isinstance(spec.default, attrs.Factory) and spec.default.takes_self  # type: ignore[arg-type]


def default_of(spec: ColumnSpec) -> Any:
    """The value of a field that a row in the making does not name, or `attrs.NOTHING`."""
    default: Any = attrs.NOTHING if needs_row(spec) else spec.default
    if default is attrs.NOTHING and spec.role is not None:
        default = spec.role.fact.default
    return default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]


def spec_of(declared: "type | TableSpec") -> TableSpec:
    """The `TableSpec` of a class made by `@table`, or the one given; else a `DeclarationError`."""
    if isinstance(declared, TableSpec):
        return declared
    spec = getattr(declared, "__dict__", {}).get(SPEC_ATTRIBUTE)
    if not isinstance(spec, TableSpec):
        raise DeclarationError(f"{declared!r} describes no table; decorate the class with @table('its_name')")
    return spec
