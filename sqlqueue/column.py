"""What a column does for the queue: one marker per role, used as `lease: datetime | None = column.lease()`."""

from typing import Any, Literal, overload

import attrs

from sqlqueue.roles import Role


@attrs.frozen
class Mark:
    """What a field of a table class says about its column."""

    role: Role
    name: str | None = None
    generated: bool = False
    fifo: bool = False


MARK = "sqlqueue"


def _mark(
    role: Role, *, name: str | None, generated: bool = False, fifo: bool = False, default: Any = attrs.NOTHING
) -> Any:
    if default is attrs.NOTHING:
        default = role.fact.default
    if default is attrs.NOTHING and generated:
        default = None
    mark = Mark(role=role, name=name, generated=generated, fifo=fifo)
    return attrs.field(default=default, kw_only=True, metadata={MARK: mark})


@overload
def id(*, name: str | None = None, generated: Literal[True], init: Literal[False] = False) -> Any: ...
@overload
def id(*, name: str | None = None, generated: Literal[False] = False) -> Any: ...
def id(*, name: str | None = None, generated: bool = False, init: bool = True) -> Any:
    """The row's identity: int, str, UUID or bytes. `generated`: the database fills it in."""
    return _mark(Role.ID, name=name, generated=generated)


def group(*, name: str | None = None, fifo: bool = False, default: Any = attrs.NOTHING) -> Any:
    """The queue that the row belongs to. `fifo`: one row of a group is in work at a time, in order."""
    return _mark(Role.GROUP, name=name, fifo=fifo, default=default)


def priority(*, name: str | None = None, generated: bool = False, default: Any = attrs.NOTHING) -> Any:
    """A smaller value is claimed first."""
    return _mark(Role.PRIORITY, name=name, generated=generated, default=default)


def partition_key(*, name: str | None = None, fifo: bool = False, default: Any = attrs.NOTHING) -> Any:
    """The key whose rows keep their order. `fifo`: over all instances, at most one row of a key is in work."""
    return _mark(Role.PARTITION_KEY, name=name, fifo=fifo, default=default)


def retry_after(*, name: str | None = None, generated: bool = False, default: Any = attrs.NOTHING) -> Any:
    """Hides the row until then."""
    return _mark(Role.RETRY_AFTER, name=name, generated=generated, default=default)


def attempt(*, name: str | None = None, generated: bool = False, default: Any = attrs.NOTHING) -> Any:
    """Counts deliveries begun, from 0."""
    return _mark(Role.ATTEMPT, name=name, generated=generated, default=default)


def processed_at(*, name: str | None = None, generated: bool = False, default: Any = attrs.NOTHING) -> Any:
    """Set by an acknowledgement, which then keeps the row."""
    return _mark(Role.PROCESSED_AT, name=name, generated=generated, default=default)


def lease(*, name: str | None = None, generated: bool = False, default: Any = attrs.NOTHING) -> Any:
    """The lease's expiry: rows are claimed by lease."""
    return _mark(Role.LEASE, name=name, generated=generated, default=default)


def headers(*, name: str | None = None, generated: bool = False, default: Any = attrs.NOTHING) -> Any:
    """A JSON object of strings, handed to the delivery."""
    return _mark(Role.HEADERS, name=name, generated=generated, default=default)


def payload(*, name: str | None = None) -> Any:
    """The encoded message: the handler takes it decoded."""
    return _mark(Role.PAYLOAD, name=name)


def error(*, name: str | None = None, generated: bool = False, default: Any = attrs.NOTHING) -> Any:
    """The error's text of a parked row; clearing the column puts the row back to work."""
    return _mark(Role.ERROR, name=name, generated=generated, default=default)


def running(*, name: str | None = None, generated: bool = False, default: Any = attrs.NOTHING) -> Any:
    """True while the row is in work, for people who look with SQL."""
    return _mark(Role.RUNNING, name=name, generated=generated, default=default)
