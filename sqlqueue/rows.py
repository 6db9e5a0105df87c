"""Between rows in the table and what handlers and producers hold: decoded messages, row objects, headers."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from sqlqueue.codec import Codec, decode_with, takes_none
from sqlqueue.column import Role
from sqlqueue.delivery import Delivery
from sqlqueue.dialect import Converter, Dialect
from sqlqueue.errors import DeclarationError, DecodeError, EncodeError
from sqlqueue.headers import decode_headers
from sqlqueue.spec import ColumnSpec, TableSpec


def decode_column(decode: Converter | None, column: ColumnSpec, value: Any) -> Any:
    """One column's value in its declared type; `DecodeError` names the column."""
    if value is None:
        return None
    try:
        return value if decode is None else decode(value)
    except (ValueError, TypeError, OverflowError, ArithmeticError) as error:
        raise DecodeError(f"column {column.name!r} holds {value!r:.200}, which cannot be read: {error}") from error


@attrs.frozen
class Reader:
    """Reads a queue's claimed rows for one handler.

    `columns` are what it needs of a row, in the order in which the strategy returns them.
    """

    columns: tuple[ColumnSpec, ...]
    key_at: int | None
    _decoders: tuple[Converter | None, ...]
    _places: Mapping[Role, int]
    _message: Callable[[tuple[Any, ...]], Any]

    def raw_key(self, row: tuple[Any, ...]) -> Any:
        """The partition key as the driver returned it: good enough to keep rows of one key apart."""
        return None if self.key_at is None else row[self.key_at]

    def read(self, delivery: Delivery) -> Any:
        """Fill in the delivery and return the message; `DecodeError` where anything cannot be read."""
        row = delivery.claim.row
        for role, place in self._places.items():
            value = decode_column(self._decoders[place], self.columns[place], row[place])
            if role is Role.ID:
                delivery.id = value
            elif role is Role.PARTITION_KEY:
                delivery.key = value
            elif role is Role.GROUP:
                delivery.group = value
            else:
                delivery.headers = decode_headers(value)
        return self._message(row)

    def message(self, row: tuple[Any, ...]) -> Any:
        """The message alone."""
        return self._message(row)


#: The roles that a delivery shows.
SHOWN = (Role.ID, Role.PARTITION_KEY, Role.GROUP, Role.HEADERS)


def reader(dialect: Dialect, spec: TableSpec, codec: Codec, kind: Any) -> Reader:
    """The reader for a handler that takes messages of type `kind`, or rows where the table has no payload."""
    payload = spec.role(Role.PAYLOAD)
    if payload is None:
        columns: tuple[ColumnSpec, ...] = spec.columns
    else:
        columns = (*(column for column in spec.columns if column.role in SHOWN), payload)
    decoders = tuple(dialect.decoder(column) for column in columns)
    places = {
        column.role: place for place, column in enumerate(columns) if column.role is not None and column.role in SHOWN
    }
    if payload is None:
        message = _row_reader(spec, columns, decoders)
    else:
        message = _payload_reader(payload, codec, kind, columns.index(payload), decoders[columns.index(payload)])
    return Reader(columns, places.get(Role.PARTITION_KEY), decoders, places, message)


def _row_reader(
    spec: TableSpec, columns: Sequence[ColumnSpec], decoders: Sequence[Converter | None]
) -> Callable[[tuple[Any, ...]], Any]:
    make, fields, others = _maker(spec, columns)

    def read(row: tuple[Any, ...]) -> Any:
        values = {}
        for (column, name), decode, value in zip(fields, decoders, row, strict=True):
            if value is None and not column.optional and not column.generated:
                raise DecodeError(f"column {column.name!r} is NULL and is not declared as optional")
            values[name] = decode_column(decode, column, value)
        set_later = {name: values.pop(name) for name in others}
        try:
            made = make(**values)
        except Exception as error:  # a validator of the row's class may raise anything
            raise DecodeError(f"the row is refused by its class: {error!r}") from error
        for name, value in set_later.items():
            object.__setattr__(made, name, value)  # as the table holds it, whatever the class does on assignment
        return made

    return read


def _maker(
    spec: TableSpec, columns: Sequence[ColumnSpec]
) -> tuple[Callable[..., Any], Sequence[tuple[ColumnSpec, str]], Sequence[str]]:
    """What makes a row, the name by which it takes each column's value, and the names of those that it does not take:
    fields with `init=False`."""
    if spec.row_class is None:
        return dict, [(column, column.field) for column in columns], ()
    attributes = {one.name: one for one in attrs.fields(spec.row_class)}
    fields = [
        (column, str(attributes[column.field].alias) if attributes[column.field].init else column.field)
        for column in columns
    ]
    return spec.row_class, fields, [column.field for column in columns if not attributes[column.field].init]


def payload_decoder(codec: Codec, kind: Any) -> Converter:
    """The codec's decoder for messages of an annotated type; `DeclarationError` where it knows none."""
    try:
        return codec.decoder(kind)
    except Exception as error:  # a codec of the user's may raise anything
        name = getattr(kind, "__qualname__", str(kind))
        raise DeclarationError(
            f"messages annotated as {name} cannot be decoded: {error}; annotate a type that JsonCodec lists, such as a "
            "dataclass or an attrs class, or give the broker a codec that knows it"
        ) from error


def _payload_reader(
    column: ColumnSpec, codec: Codec, kind: Any, place: int, decode: Converter | None
) -> Callable[[tuple[Any, ...]], Any]:
    raw = kind is bytes
    structured = column.type not in (bytes, str)
    decode_payload = bytes if raw else payload_decoder(codec, kind)

    def read(row: tuple[Any, ...]) -> Any:
        stored = decode_column(decode, column, row[place])
        if stored is None:
            if takes_none(kind):
                return None
            raise DecodeError("the payload is NULL, and the handler's annotation does not take None")
        if structured:
            stored = json.dumps(stored)
        if raw:
            return stored if isinstance(stored, bytes) else str(stored).encode()
        return decode_with(decode_payload, stored, kind)

    return read


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
