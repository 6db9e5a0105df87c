"""Messages to payloads and back, and headers to their column and back.

The default codec writes JSON through cattrs. A value comes back as it was, or is refused. Nothing is ever evaluated.
"""

import base64
import json
import threading
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, MutableSet, Sequence, Set
from dataclasses import is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Protocol, Union, get_args, get_origin
from uuid import UUID

import attrs
from cattrs import Converter
from cattrs.errors import StructureHandlerNotFoundError
from cattrs.preconf.json import configure_converter

from sqlqueue.errors import DecodeError, EncodeError


def _unknown(kind: Any) -> Any:
    # Older releases of cattrs hand out a hook that only fails when a message comes.
    raise StructureHandlerNotFoundError(f"Unsupported type: {kind!r}. Register a structure hook for it.", kind)


def make_converter() -> Converter:
    """A cattrs converter for JSON: a value comes back as it was, or is refused. No type is turned into another."""
    converter = Converter(forbid_extra_keys=False, structure_fallback_factory=_unknown)
    configure_converter(converter)
    converter.register_unstructure_hook(bytes, lambda value: base64.b64encode(value).decode("ascii"))
    converter.register_structure_hook(bytes, lambda value, _: base64.b64decode(value, validate=True))
    converter.register_unstructure_hook(Decimal, _decimal_out)
    converter.register_structure_hook(Decimal, lambda value, _: _decimal_in(value))
    converter.register_unstructure_hook(UUID, str)
    converter.register_structure_hook(UUID, lambda value, _: UUID(value))
    converter.register_unstructure_hook(timedelta, _timedelta_out)
    converter.register_structure_hook(timedelta, lambda value, _: timedelta(seconds=value))
    converter.register_unstructure_hook(datetime, lambda value: value.isoformat())
    converter.register_structure_hook(datetime, lambda value, _: _moment(value))
    converter.register_unstructure_hook(date, _date_out)
    converter.register_structure_hook(date, lambda value, _: date.fromisoformat(value))
    converter.register_unstructure_hook(time, lambda value: value.isoformat())
    converter.register_structure_hook(time, lambda value, _: time.fromisoformat(value))
    for kind in (int, float, str, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_unstructure_hook_func(_is_enum, _enum_out)
    converter.register_structure_hook_factory(_is_keyed_otherwise, lambda kind: _mapping_in(converter, kind))
    converter.register_unstructure_hook_factory(_is_set, lambda kind: _set_out(converter, kind))
    converter.register_unstructure_hook_factory(_has_fields, lambda kind: _object_out(converter, kind))
    converter.register_unstructure_hook_factory(_is_mixed, lambda kind: _mixed_out(converter, kind))
    _check_shapes(converter)
    return converter


def _check_shapes(converter: Converter) -> None:
    """Read a list from a JSON list only, and a mapping from an object only. cattrs takes everything that can be
    iterated, such as a text for the list of its letters."""
    making = threading.local()  # the type whose inner hook is looked up: the look-up must not find this factory

    def is_container(kind: Any) -> bool:
        return kind is not getattr(making, "kind", None) and _json_shape(kind) is not None

    def checked(kind: Any) -> Callable[[Any, Any], Any]:
        before, making.kind = getattr(making, "kind", None), kind
        try:
            read = converter.get_structure_hook(kind, cache_result=False)
        finally:
            making.kind = before
        shape = _json_shape(kind)
        assert shape is not None, kind

        def structure(value: Any, wanted: Any) -> Any:
            if not isinstance(value, shape):
                raise TypeError(f"{value!r:.200} is no {'list' if shape is list else 'object'}")
            return read(value, wanted)

        return structure

    converter.register_structure_hook_factory(is_container, checked)


def _json_shape(kind: Any) -> type | None:
    """What holds a container in JSON."""
    origin = get_origin(kind) or kind
    if origin in (list, tuple, set, frozenset, Sequence, MutableSequence, Set, MutableSet):
        return list
    return dict if origin in (dict, Mapping, MutableMapping) else None


def _exactly(kind: type) -> Callable[[Any, Any], Any]:
    """A value of JSON's own type `kind` as the wanted class: that type, or a class made of it, such as an enum."""

    def check(value: Any, wanted: Any) -> Any:
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise TypeError(f"{value!r} is no {kind.__name__}")
        return wanted(value) if wanted is not kind and isinstance(wanted, type) else value

    return check


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)


def _date_out(value: date) -> str:
    if isinstance(value, datetime):
        raise TypeError(f"{value!r} is a moment in place of a date")
    return value.isoformat()


def _timedelta_out(value: timedelta) -> float:
    seconds = value.total_seconds()
    try:
        if timedelta(seconds=seconds) == value:
            return seconds
    except OverflowError:
        pass
    raise ValueError(f"{value!r} is too long to be kept to the microsecond as seconds")


def _decimal_out(value: Decimal) -> str:
    if value.is_nan():
        raise ValueError(f"{value!r} is no number")
    return str(value)


def _decimal_in(value: Any) -> Decimal:
    """From text, as we write it, or from another program's JSON number, digit by digit."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"{value!r} is no decimal number")
    return Decimal(value if isinstance(value, str) else repr(value))


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Enum)


def _enum_out(member: Enum) -> Any:
    if type(member.value) not in (str, int, float, bool):
        raise TypeError(f"{member!r} stands for a {type(member.value).__name__}; give its members text or numbers")
    return member.value


def _is_keyed_otherwise(kind: Any) -> bool:
    """Whether this is a mapping whose keys are neither text in JSON nor made from text."""
    if get_origin(kind) not in (dict, Mapping, MutableMapping):
        return False
    key = get_args(kind)[0]
    return isinstance(key, type) and issubclass(key, int | float | Enum)


def _mapping_in(converter: Converter, kind: Any) -> Callable[[Any, Any], Any]:
    """A mapping whose keys are numbers. JSON has only text as keys, so a key holds the number's JSON."""
    key_kind, value_kind = get_args(kind)
    spelled = issubclass(key_kind, Enum) and any(isinstance(member.value, str) for member in key_kind)

    def structure(value: Any, _: Any) -> dict[Any, Any]:
        return {
            converter.structure(key if spelled else from_json(key), key_kind): converter.structure(item, value_kind)
            for key, item in value.items()
        }

    return structure


def _is_set(kind: Any) -> bool:
    """Whether this is a set of a declared type. A bare set would come back as a list."""
    return get_origin(kind) in (set, frozenset, Set, MutableSet)


def _set_out(converter: Converter, kind: Any) -> Callable[[Any], Any]:
    (member,) = get_args(kind)
    return lambda value: [converter.unstructure(one, unstructure_as=member) for one in value]


def _has_fields(kind: Any) -> bool:
    return isinstance(kind, type) and (attrs.has(kind) or is_dataclass(kind))


def _object_out(converter: Converter, kind: Any) -> Callable[[Any], Any]:
    """Refuse an object of a derived class. It is read as the declared class and would lose its own fields."""
    fields_out = converter.gen_unstructure_attrs_fromdict(kind)

    def unstructure(value: Any) -> Any:
        if type(value) is not kind and isinstance(value, kind):
            raise TypeError(f"{value!r} would come back as the {kind.__qualname__} that is declared, without the rest")
        return fields_out(value)

    return unstructure


def _is_mixed(kind: Any) -> bool:
    """Whether this is a union of several types beside None."""
    return get_origin(kind) in (Union, UnionType) and len([one for one in get_args(kind) if one is not NoneType]) > 1


def check_union(kind: Any) -> None:
    """Raise `TypeError` where two members of a union look alike in JSON, so that one would be read as the other."""
    members = get_args(kind) if _is_mixed(kind) else ()
    for member in members:
        alike = _forms(member) & set(members) - {member}
        if alike:
            raise TypeError(f"{member.__qualname__} and {alike.pop().__qualname__} look alike in JSON")


def _forms(kind: Any) -> set[type]:
    """The JSON types that values of this type are written as; none for JSON's own types, which are read as they are."""
    if _is_enum(kind):
        return {type(member.value) for member in kind}
    if not isinstance(kind, type):
        return set()
    if issubclass(kind, timedelta):
        return {float}
    return {str} if issubclass(kind, bytes | Decimal | UUID | date | time) else set()


def _mixed_out(converter: Converter, kind: Any) -> Callable[[Any], Any]:
    """Read each value back before it is stored: JSON may show it like another member of the union."""

    def unstructure(value: Any) -> Any:
        stored = converter.unstructure(value)
        back = converter.structure(stored, kind)
        if type(back) is not type(value) or back != value:
            raise TypeError(f"{value!r} in a {kind} would come back as {back!r}")
        return stored

    return unstructure


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_decode_text = json.JSONDecoder(parse_constant=_no_constant).decode


def from_json(stored: Any) -> Any:
    """The value that JSON in text or bytes stands for. Python's NaN and Infinity are refused."""
    return _decode_text(stored if isinstance(stored, str) else bytes(stored).decode())


class Codec(Protocol):
    """Between a message and the text or bytes that the payload column holds."""

    def encode(self, message: Any) -> bytes:
        """The stored form; `EncodeError` where the message has none."""
        ...

    def decoder(self, kind: Any) -> Callable[[Any], Any]:
        """A function from the stored form (bytes or text) to a message of the annotated type `kind`."""
        ...


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} has no JSON form")


@attrs.frozen
class JsonCodec:
    """JSON, typed by the handler's annotation.

    Takes what JSON holds, and dataclasses, attrs classes, enums, aware and naive datetimes, dates, times, timedeltas
    (seconds), UUIDs, Decimals (text), bytes (base64) and sets (lists) inside them. `converter`: a cattrs converter of
    one's own.
    """

    converter: Converter = attrs.field(factory=make_converter, eq=False)

    def encode(self, message: Any) -> bytes:
        try:
            text = json.dumps(
                self.converter.unstructure(message), default=_refuse, allow_nan=False, separators=(",", ":")
            )
            return text.encode()
        except Exception as error:  # the converter's hooks meet values that are not what their fields declare
            raise EncodeError(
                f"a message of type {type(message).__qualname__} cannot be stored as JSON: {error}; use types that "
                "JsonCodec lists, or give the broker a codec that knows it"
            ) from error

    def decoder(self, kind: Any) -> Callable[[Any], Any]:
        if kind in (Any, object):
            return from_json
        check_union(kind)
        structure = self.converter.get_structure_hook(kind)

        def decode(stored: Any) -> Any:
            return structure(_decode_text(stored if isinstance(stored, str) else bytes(stored).decode()), kind)

        return decode


def takes_none(kind: Any) -> bool:
    """Whether a handler annotated with `kind` takes None as its message."""
    return kind in (None, NoneType) or NoneType in getattr(kind, "__args__", ())


#: What header values may be; they are stored as text.
HEADER_TYPES = (str, int, float, bool)

#: The header by which a tracked message names its record, unless another is chosen. A reply is another message and does
#: not inherit it.
RECORD_HEADER = "outbox-record"


def encode_headers(headers: Mapping[Any, Any]) -> dict[str, str]:
    """Headers as they are stored; `EncodeError` for a key or value of another type."""
    if not isinstance(headers, Mapping):
        raise EncodeError(f"headers are {headers!r}; give a mapping, with text as keys")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, HEADER_TYPES):
            raise EncodeError(f"header {name!r}: {value!r}; give text as key, and str, int, float or bool as value")
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in headers.items()}


def decode_headers(stored: Any) -> Mapping[str, str]:
    """Stored headers; NULL is empty, anything but an object of strings a `DecodeError`."""
    if stored is None:
        return {}
    try:
        headers = json.loads(stored) if isinstance(stored, str | bytes) else stored
    except ValueError as error:
        raise DecodeError(f"the headers are no JSON: {error}") from error
    if not isinstance(headers, dict) or not all(isinstance(value, str) for value in headers.values()):
        raise DecodeError(f"the headers are {stored!r}, which is no JSON object of strings")
    return headers
