"""Enqueue: turn a message and its options into the values of one row. Everything is checked before the insert runs."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from functools import cached_property, partial
from typing import Any

import attrs

from sqlqueue.clock import UTC, DatabaseClock, Duration, delay_seconds, later, utc
from sqlqueue.codec import Codec, encode_headers
from sqlqueue.dialect import Connection, Converter, Dialect
from sqlqueue.errors import DeclarationError, EncodeError
from sqlqueue.roles import NOW, Role
from sqlqueue.spec import SPEC_ATTRIBUTE, ColumnSpec, TableSpec, default_of, makes_default, needs_row
from sqlqueue.sql import Call, Statement
from sqlqueue.statements import insert


def encode_payload(column: ColumnSpec, codec: Codec, message: Any) -> Any:
    """A message as the payload column holds it: bytes go in as they are."""
    stored = message if isinstance(message, bytes) else codec.encode(message)
    if column.type is bytes:
        return stored
    try:
        text = stored.decode()
        return text if column.type is str else json.loads(text)
    except ValueError as error:
        raise EncodeError(
            f"the payload column {column.name!r} holds text and cannot take these bytes: {error}; declare it as bytes"
        ) from error


@attrs.frozen
class Cell:
    """One column of the insert, with all that is decided once.

    `default`: the value where the row names none; `make` makes it for each row, or raises where there is none.
    `filled`: what makes the value of a column that takes no NULL where there is no other. `encode` turns the value
    into what the driver binds.
    """

    field: str
    encode: Converter | None
    default: Any = None
    make: Callable[[], Any] | None = None
    filled: Callable[[], Any] | None = None


@attrs.define(kw_only=True, eq=False)
class RowMaker:
    """Makes rows for one queue: `columns` are those that our insert names.

    `delay` is the name of one more value where the database's clock says when a row is due: the seconds from its *now*,
    for a row that names no moment. No field is called so.
    """

    queue: str
    spec: TableSpec
    group: str | None
    codec: Codec
    dialect: Dialect
    columns: tuple[ColumnSpec, ...] = attrs.field(init=False)
    delay: str | None = attrs.field(init=False)
    _cells: tuple[Cell, ...] = attrs.field(init=False)
    _payload: ColumnSpec | None = attrs.field(init=False)
    _group_field: str | None = attrs.field(init=False)
    _at_once: float | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        spec = self.spec
        self.columns = tuple(column for column in spec.columns if not column.generated)
        self._cells = tuple(self._cell(column) for column in self.columns)
        self._payload = spec.role(Role.PAYLOAD)
        group, due = spec.role(Role.GROUP), spec.role(Role.RETRY_AFTER)
        self._group_field = group.field if group is not None and self.group is not None else None
        self.delay = None
        if due in self.columns and isinstance(spec.clock, DatabaseClock):
            self.delay = "delay"
            while any(column.field == self.delay for column in self.columns):
                self.delay += "_"
        # What `delay` is for a row that asks for no moment: none, or *now* where the column takes no NULL.
        self._at_once = None if due is None or due.optional else 0.0

    def _cell(self, column: ColumnSpec) -> Cell:
        default, make = None, None
        if makes_default(column):
            make = column.default.factory
        else:
            default = default_of(column)
            if default is attrs.NOTHING or needs_row(column):
                make = partial(self._no_default, column)
        filled = None if column.optional or column.role is None else column.role.fact.filled
        return Cell(
            field=column.field,
            encode=self.dialect.encoder(column),
            default=default,
            make=make,
            filled=self._now if filled is NOW else filled,
        )

    # -- one row ----------------------------------------------------------------------------------------------

    def insertion(self, message: Any, *, on_conflict: str = "error", **options: Any) -> Call:
        """The insert of one row. `options`: those of `row`."""
        values = self.named(self.row(message, **options))
        if on_conflict == "error":
            return Call(self.single, values)
        if on_conflict != "ignore":
            raise ValueError(f"on_conflict is {on_conflict!r}; give 'error' or 'ignore'")
        return Call(self.unless_there, values)

    @cached_property
    def single(self) -> Statement:
        """The insert of one row, which returns its id."""
        return insert(self.dialect, self.spec, self.columns, delay=self.delay)

    @cached_property
    def unless_there(self) -> Statement:
        """The same, which leaves out a row that meets a unique index."""
        return insert(self.dialect, self.spec, self.columns, ignore=True, delay=self.delay)

    @cached_property
    def bulk(self) -> Statement:
        """The insert of one of many rows, which returns nothing."""
        return insert(self.dialect, self.spec, self.columns, returning=False)

    def row(
        self,
        message: Any,
        *,
        key: Any = None,
        headers: Mapping[str, Any] | None = None,
        priority: float | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """The row's values by field, and by `delay`."""
        row = self._fields(message)
        if fields:
            row.update(fields)
        if headers is not None:
            self._put(row, Role.HEADERS, encode_headers(headers), "headers")
        if key is not None:
            self._put(row, Role.PARTITION_KEY, key, "key")
        if priority is not None:
            self._put(row, Role.PRIORITY, self._number(priority), "priority")
        wait = self._at_once
        if delay is not None or at is not None:
            due, wait = self._due(delay, at)
            self._put(row, Role.RETRY_AFTER, due, "delay or at")
        if self._group_field is not None and row.setdefault(self._group_field, self.group) != self.group:
            raise DeclarationError(
                f"queue {self.queue}: the row's group is {row[self._group_field]!r}; enqueue it to the queue of that "
                "group"
            )
        for cell in self._cells:
            if cell.field not in row:
                row[cell.field] = cell.default if cell.make is None else cell.make()
            value = row[cell.field]
            if value is None and cell.filled is not None:
                value = row[cell.field] = cell.filled()
            if isinstance(value, datetime) and value.tzinfo is not UTC:
                row[cell.field] = utc(value, f"queue {self.queue}: {cell.field}")
        if self.delay is not None:
            row[self.delay] = self._at_once if wait is None else wait
        return row

    def named(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row's values as the driver binds them, by the insert's names."""
        values = {}
        for cell in self._cells:
            value = row[cell.field]
            values[cell.field] = value if value is None or cell.encode is None else cell.encode(value)
        if self.delay is not None:
            values[self.delay] = row[self.delay]
        return values

    # -- many rows --------------------------------------------------------------------------------------------

    def many(self, messages: Iterable[Any], connection: Connection) -> Iterator[tuple[Any, ...]]:
        """The values of a row for each message, for the connection's `insert_many`.

        COPY evaluates no expression for a row. So where each needs a moment and only the database knows *now*, it is
        asked, once for all of them.
        """
        if isinstance(messages, str | bytes | bytearray | memoryview | Mapping):
            raise ValueError(
                f"queue {self.queue}: enqueue_many is given {messages!r:.200}, which is one message; give a list of "
                "messages, or enqueue it"
            )
        due, now = self.spec.role(Role.RETRY_AFTER), None
        if self.delay is not None and due is not None and not due.optional:
            now = self.dialect.read_clock(connection)
        return self._tuples(messages, None if now is None or due is None else due.field, now)

    def _tuples(
        self, messages: Iterable[Any], due_field: str | None, now: datetime | None
    ) -> Iterator[tuple[Any, ...]]:
        plan = [(cell.field, cell.encode) for cell in self._cells]
        for message in messages:
            row = self.row(message)
            if due_field is not None and row[due_field] is None:
                row[due_field] = now
            yield tuple(
                [row[name] if encode is None or row[name] is None else encode(row[name]) for name, encode in plan]
            )

    # -- the parts of a row -----------------------------------------------------------------------------------

    def _fields(self, message: Any) -> dict[str, Any]:
        """The values that the message itself gives: those of a row, or the payload."""
        spec, payload = self.spec, self._payload
        if spec.row_class is not None and isinstance(message, spec.row_class):
            return self._known(dict(spec.values(message)))
        if payload is None and spec.row_class is None and isinstance(message, Mapping):
            return self._known(dict(message))
        theirs: TableSpec | None = getattr(type(message), SPEC_ATTRIBUTE, None)
        if theirs is not None:
            raise EncodeError(
                f"queue {self.queue}: {type(message).__qualname__} is the row of another table, {theirs.full_name!r}; "
                "enqueue it to a queue of that table"
            )
        if payload is None:
            rows = spec.row_class.__qualname__ if spec.row_class else "a mapping"
            raise EncodeError(
                f"queue {self.queue}: {type(message).__qualname__} is no row of the table, which has no payload "
                f"column; enqueue {rows}"
            )
        return {payload.field: encode_payload(payload, self.codec, message)}

    def _known(self, values: dict[str, Any]) -> dict[str, Any]:
        known = [column.field for column in self.spec.columns]
        for field in values:
            if field not in known:
                raise EncodeError(
                    f"queue {self.queue}: the row names {field!r}, which is no field of its table; the fields are "
                    f"{', '.join(known)}"
                )
        return values

    def _put(self, row: dict[str, Any], role: Role, value: Any, option: str) -> None:
        column = self.spec.role(role)
        if column is None:
            raise DeclarationError(
                f"queue {self.queue}: {option} given, but no column plays the role {role.value!r}; mark one with "
                f"column.{role.value}(); nothing was written"
            )
        if column.generated:
            raise DeclarationError(
                f"queue {self.queue}: {option} given, but column {column.field!r} is declared as generated, so that "
                "the database fills it in; leave generated=True out; nothing was written"
            )
        row[column.field] = value

    def _number(self, priority: Any) -> float:
        if isinstance(priority, bool) or not isinstance(priority, int | float) or priority != priority:
            raise EncodeError(f"queue {self.queue}: priority is {priority!r}; give a number, the smaller the sooner")
        return priority

    def _due(self, delay: Duration | None, at: datetime | None) -> tuple[datetime | None, float | None]:
        """When the row is due: a moment, or seconds from the database's *now*."""
        if delay is not None and at is not None:
            raise ValueError(f"delay={delay!r} and at={at!r} are both given; give one of them")
        if at is not None:
            return utc(at, "at"), None
        assert delay is not None
        now = self._now()
        return (None, delay_seconds(delay)) if now is None else (later(now, delay), None)

    def _now(self) -> datetime | None:
        """The table's *now*; None where only the database knows it."""
        clock = self.spec.clock
        return None if isinstance(clock, DatabaseClock) else clock.now()

    def _no_default(self, column: ColumnSpec) -> Any:
        if column.role is Role.GROUP:
            raise EncodeError(
                f"queue {self.queue}: the row has no group; enqueue it to the queue of one, which is "
                f"broker.queue(…, group=…), or give the row its {column.field!r}"
            )
        if needs_row(column):
            raise EncodeError(
                f"queue {self.queue}: the row has no value for {column.field!r}, whose default is made of the row "
                "itself (Factory(takes_self=True), @field.default); enqueue a whole row, or give another default"
            )
        raise EncodeError(
            f"queue {self.queue}: the row has no value for {column.field!r}, which has no default; enqueue a whole "
            "row, give the field a default, or declare it as generated"
        )
