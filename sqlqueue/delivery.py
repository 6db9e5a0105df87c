"""The delivery that a handler gets with its message, and the reader that makes both from a claimed row."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import attrs

from sqlqueue.codec import RECORD_HEADER, Codec, decode_headers, takes_none
from sqlqueue.dialect import Converter, Dialect
from sqlqueue.errors import DeclarationError, DecodeError, TransactionError
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.strategies.claim import Claim


@attrs.define(eq=False)
class Delivery:
    """One delivery of one row.

    `attempt` is 1 on the first delivery, None on a table that does not count. `key` and `group` are None where the
    table has no such column; `headers` are empty there. `lost`: whether the row is known to have been lost, such as by
    the end of its lease; what the handler still does will not be acknowledged. `asked`: what is called once it is
    processed.
    """

    queue: str
    claim: Claim = attrs.field(repr=False)
    id: Any = None
    key: Any = None
    group: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)
    lost: bool = attrs.field(default=False, repr=False)
    _connection: Any = attrs.field(default=None, repr=False)
    _over: bool = attrs.field(default=False, repr=False)
    _opener: Callable[[], None] | None = attrs.field(default=None, repr=False)
    _kept_back: tuple[str, ...] = attrs.field(default=(), repr=False)
    asked: "tuple[WhenProcessed, ...]" = attrs.field(default=(), init=False, repr=False)

    @property
    def connection(self) -> Any:
        """The driver's own connection (psycopg or sqlite3) inside the delivery's transaction, where the handler is
        `transactional`: what it writes commits with the acknowledgement and is undone by every other outcome. Do not
        commit, roll back or close it.

        Raises `TransactionError` where the handler is not transactional, and once it has returned.
        """
        if self._connection is not None:
            return self._connection
        if self._over:
            raise TransactionError("the handler has returned, and its delivery's transaction is over")
        raise TransactionError(
            "only a transactional handler's delivery has a connection: register it with handler(transactional=True)"
        )

    @property
    def opened(self) -> bool:
        """Whether its transaction is open."""
        return self._connection is not None

    def opens_by(self, opener: Callable[[], None]) -> None:
        """What `open` calls."""
        self._opener = opener

    def open(self) -> None:
        """Begin the delivery's transaction; raises where the database does not let it."""
        assert self._opener is not None, "the handler is not transactional"
        self._opener()

    def lend(self, connection: Any) -> None:
        """Let the handler have its delivery's connection."""
        self._connection = connection

    def end(self) -> None:
        """Take the connection back."""
        self._connection, self._opener, self._over = None, None, True

    def when_processed(self, call: "WhenProcessed") -> None:
        """Have `call` called once the message is processed: acknowledged or dropped, with its replies confirmed.

        It is called before the row is settled, in the handler's transaction where there is one. Where the settlement
        undoes that transaction, it is called after the settlement. The deliveries of a batch that ask for the same
        call share one call.
        """
        self.asked += (call,)

    def keep_back(self, header: str) -> None:
        """Leave this header of the message out of its replies, also out of those that copy the headers: it is about the
        message alone."""
        self._kept_back += (header,)

    def headers_of_reply(self, own: Mapping[str, str]) -> dict[str, str]:
        """The headers of a reply with these of its own: the message's as well, without those about the message
        alone."""
        inherited = {name: value for name, value in self.headers.items() if name != RECORD_HEADER}
        headers = {**inherited, **own}
        for name in self._kept_back:
            if name in headers and headers[name] == self.headers.get(name):
                del headers[name]
        return headers

    @property
    def attempt(self) -> int | None:
        return self.claim.attempt

    @property
    def expires(self) -> datetime | None:
        """When the lease ends unless it is extended, aware UTC; None where no lease holds the row."""
        return self.claim.expires

    def lose(self) -> None:
        """Note that the row belongs to somebody else now."""
        self.lost = True


#: Called with deliveries that are processed; it raises nothing.
WhenProcessed = Callable[[Sequence[Delivery]], None]


def tell_processed(deliveries: Sequence[Delivery]) -> None:
    """Make the calls that these deliveries asked for by `when_processed`."""
    asked: dict[WhenProcessed, list[Delivery]] = {}
    for delivery in deliveries:
        for call in delivery.asked:
            asked.setdefault(call, []).append(delivery)
    for call, of in asked.items():
        call(of)


#: What a decoder raises for a value that it cannot read.
UNREADABLE = (ValueError, TypeError, OverflowError, ArithmeticError)


def _unreadable(column: ColumnSpec, value: Any, error: Exception) -> DecodeError:
    return DecodeError(f"column {column.name!r} holds {value!r:.200}, which cannot be read: {error}")


def decode_column(decode: Converter | None, column: ColumnSpec, value: Any) -> Any:
    """One column's value in its declared type; `DecodeError` names the column."""
    try:
        return value if decode is None or value is None else decode(value)
    except UNREADABLE as error:
        raise _unreadable(column, value, error) from error


@attrs.frozen
class Reader:
    """Reads a queue's claimed rows for one handler.

    `columns` are what it needs of a row, in the order in which the strategy returns them. `key_at` is the place of the
    partition key. `shown`: the attributes of a delivery, each with the column's place and decoder. `message` makes the
    message of a row.
    """

    columns: tuple[ColumnSpec, ...]
    key_at: int | None
    shown: tuple[tuple[str, int, Converter | None], ...]
    message: Callable[[tuple[Any, ...]], Any]

    def raw_key(self, row: tuple[Any, ...]) -> Any:
        """The partition key as the driver returned it: good enough to keep rows of one key apart."""
        return None if self.key_at is None else row[self.key_at]

    def read(self, delivery: Delivery) -> Any:
        """Fill in the delivery and return the message; `DecodeError` where anything cannot be read."""
        row = delivery.claim.row
        for attribute, place, decode in self.shown:
            value = row[place]
            if value is None:
                continue
            try:
                setattr(delivery, attribute, value if decode is None else decode(value))
            except UNREADABLE as error:
                raise _unreadable(self.columns[place], value, error) from error
        return self.message(row)


def reader(dialect: Dialect, spec: TableSpec, codec: Codec, kind: Any) -> Reader:
    """The reader for a handler that takes messages of type `kind`, or rows where the table has no payload."""
    payload = spec.role(Role.PAYLOAD)
    if payload is None:
        columns: tuple[ColumnSpec, ...] = spec.columns
    else:
        columns = (*(column for column in spec.columns if column.role and column.role.fact.shown_as), payload)
    decoders = tuple(dialect.decoder(column) for column in columns)
    shown = tuple(
        (column.role.fact.shown_as, place, _headers_decoder(decode) if column.role is Role.HEADERS else decode)
        for place, (column, decode) in enumerate(zip(columns, decoders, strict=True))
        if column.role and column.role.fact.shown_as
    )
    if payload is None:
        message = _row_reader(spec, columns, decoders)
    else:
        message = _payload_reader(payload, codec, kind, len(columns) - 1, decoders[-1])
    key = spec.role(Role.PARTITION_KEY)
    return Reader(columns, columns.index(key) if key else None, shown, message)


def _headers_decoder(decode: Converter | None) -> Converter:
    return decode_headers if decode is None else lambda stored: decode_headers(decode(stored))


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
    raw, takes_null = kind is bytes, takes_none(kind)
    structured = column.type not in (bytes, str)
    decode_payload = bytes if raw else payload_decoder(codec, kind)

    def read(row: tuple[Any, ...]) -> Any:
        stored = row[place]
        if stored is None:
            if takes_null:
                return None
            raise DecodeError("the payload is NULL, and the handler's annotation does not take None")
        if decode is not None:
            try:
                stored = decode(stored)
            except UNREADABLE as error:
                raise _unreadable(column, stored, error) from error
        if structured:
            stored = json.dumps(stored)
        if raw:
            return stored if isinstance(stored, bytes) else str(stored).encode()
        try:
            return decode_payload(stored)
        except Exception as error:  # a codec of the user's may raise anything
            name = getattr(kind, "__qualname__", str(kind))
            raise DecodeError(f"the payload does not decode as {name}: {error!r}") from error

    return read
