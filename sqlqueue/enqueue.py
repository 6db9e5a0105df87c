"""Enqueue: a message and its options become the values of one row, checked before anything is written."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import attrs

from sqlqueue.clock import DatabaseClock, Duration, delay_seconds, later, utc
from sqlqueue.codec import Codec, encode_headers
from sqlqueue.delivery import encode_payload
from sqlqueue.dialect import Connection, Converter, Dialect
from sqlqueue.errors import DeclarationError, EncodeError
from sqlqueue.roles import Role
from sqlqueue.spec import SPEC_ATTRIBUTE, ColumnSpec, TableSpec, default_of, needs_row


@attrs.frozen(kw_only=True)
class RowMaker:
    """Makes rows for one queue: `columns` are those that our insert names, `encoders` turn their values.

    `delay` is the name of one more value where the database's clock says when a row is due: the seconds from its *now*,
    for a row that names no moment. No field is called so.
    """

    queue: str
    spec: TableSpec
    group: str | None
    codec: Codec
    dialect: Dialect
    columns: tuple[ColumnSpec, ...] = attrs.field(init=False)
    encoders: tuple[Converter | None, ...] = attrs.field(init=False)
    delay: str | None = attrs.field(init=False)

    @columns.default
    def _columns(self) -> tuple[ColumnSpec, ...]:
        return tuple(column for column in self.spec.columns if not column.generated)

    @encoders.default
    def _encoders(self) -> tuple[Converter | None, ...]:
        return tuple(self.dialect.encoder(column) for column in self.columns)

    @delay.default
    def _delay(self) -> str | None:
        if not isinstance(self.spec.clock, DatabaseClock):
            return None
        if not any(column.role is Role.RETRY_AFTER for column in self.columns):
            return None
        name = "delay"
        while any(column.field == name for column in self.columns):
            name += "_"
        return name

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
        row = {**(self._fields(message) if self._is_row(message) else self._wrap(message)), **(fields or {})}
        if headers is not None:
            self._put(row, Role.HEADERS, encode_headers(headers), "headers")
        if key is not None:
            self._put(row, Role.PARTITION_KEY, key, "key")
        if priority is not None:
            self._put(row, Role.PRIORITY, self._number(priority), "priority")
        wait = None
        if delay is not None or at is not None:
            due, wait = self._due(delay, at)
            self._put(row, Role.RETRY_AFTER, due, "delay or at")
        self._complete(row)
        if self.delay is not None:
            row[self.delay] = self._at_once if wait is None else wait
        return row

    def _is_row(self, message: Any) -> bool:
        if self.spec.row_class is not None and isinstance(message, self.spec.row_class):
            return True
        return not self.spec.has(Role.PAYLOAD) and self.spec.row_class is None and isinstance(message, Mapping)

    def _fields(self, row: Any) -> dict[str, Any]:
        values = dict(self.spec.values(row))
        known = [column.field for column in self.spec.columns]
        unknown = [field for field in values if field not in known]
        if unknown:
            raise EncodeError(
                f"queue {self.queue}: the row names {unknown[0]!r}, which is no field of its table; the fields are "
                f"{', '.join(known)}"
            )
        return values

    def _wrap(self, message: Any) -> dict[str, Any]:
        payload = self.spec.role(Role.PAYLOAD)
        theirs: TableSpec | None = getattr(type(message), SPEC_ATTRIBUTE, None)
        if theirs is not None:
            raise EncodeError(
                f"queue {self.queue}: {type(message).__qualname__} is the row of another table, {theirs.full_name!r}; "
                "enqueue it to a queue of that table"
            )
        if payload is None:
            rows = self.spec.row_class.__qualname__ if self.spec.row_class else "a mapping"
            raise EncodeError(
                f"queue {self.queue}: {type(message).__qualname__} is no row of the table, which has no payload "
                f"column; enqueue {rows}"
            )
        return {payload.field: encode_payload(payload, self.codec, message)}

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

    @property
    def _at_once(self) -> float | None:
        """What `delay` is for a row that asks for no moment: none, or *now* where the column takes no NULL."""
        column = self.spec.role(Role.RETRY_AFTER)
        return None if column is None or column.optional else 0.0

    def _complete(self, row: dict[str, Any]) -> None:
        group = self.spec.role(Role.GROUP)
        if group is not None and self.group is not None:
            if row.get(group.field, self.group) != self.group:
                raise DeclarationError(
                    f"queue {self.queue}: the row's group is {row[group.field]!r}; enqueue it to the queue of that "
                    "group"
                )
            row[group.field] = self.group
        for column in self.columns:
            value = row[column.field] if column.field in row else self._default(column)
            if value is None and not column.optional:
                value = self._filled(column)
            if isinstance(value, datetime):
                value = utc(value, f"queue {self.queue}: {column.field}")
            row[column.field] = value

    def _default(self, column: ColumnSpec) -> Any:
        default = default_of(column)
        if default is attrs.NOTHING and column.role is Role.GROUP:
            raise EncodeError(
                f"queue {self.queue}: the row has no group; enqueue it to the queue of one, which is "
                f"broker.queue(…, group=…), or give the row its {column.field!r}"
            )
        if needs_row(column):
            raise EncodeError(
                f"queue {self.queue}: the row has no value for {column.field!r}, whose default is made of the row "
                "itself (Factory(takes_self=True), @field.default); enqueue a whole row, or give another default"
            )
        if default is attrs.NOTHING:
            raise EncodeError(
                f"queue {self.queue}: the row has no value for {column.field!r}, which has no default; enqueue a whole "
                "row, give the field a default, or declare it as generated"
            )
        return default

    def _filled(self, column: ColumnSpec) -> Any:
        """What stands in a column that takes no NULL where the row names nothing."""
        if column.role is Role.RETRY_AFTER:
            return self._now()
        return {} if column.role is Role.HEADERS else None

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
        due = self.spec.role(Role.RETRY_AFTER)
        if self.delay is None or due is None or due.optional:
            return (self.values(self.row(message)) for message in messages)
        now = self.dialect.read_clock(connection)
        rows = (self.row(message) for message in messages)
        return (self.values({**row, due.field: now} if row[due.field] is None else row) for row in rows)

    def named(self, row: Mapping[str, Any]) -> dict[str, Any]:
        values = dict(zip([column.field for column in self.columns], self.values(row), strict=True))
        if self.delay is not None:
            values[self.delay] = row[self.delay]
        return values

    def values(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        values = []
        for column, encode in zip(self.columns, self.encoders, strict=True):
            value = row[column.field]
            values.append(value if encode is None or value is None else encode(value))
        return tuple(values)
