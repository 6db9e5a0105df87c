"""Messages to payloads and back. The default codec writes JSON through cattrs and never evaluates anything."""

import base64
import json
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from types import NoneType
from typing import Any, Protocol
from uuid import UUID

import attrs
from cattrs import Converter
from cattrs.preconf.json import configure_converter

from sqlqueue.errors import DecodeError, EncodeError


class Codec(Protocol):
    """Between a message and the text or bytes that the payload column holds."""

    def encode(self, message: Any) -> bytes:
        """The stored form; `EncodeError` where the message has none."""
        ...

    def decoder(self, kind: Any) -> Callable[[Any], Any]:
        """A function from the stored form (bytes or text) to a message of the annotated type `kind`."""
        ...


def _exactly(kind: type) -> Callable[[Any, Any], Any]:
    def check(value: Any, _: Any) -> Any:
        if type(value) is kind:
            return value
        if kind is float and type(value) is int:
            return float(value)
        raise TypeError(f"{value!r} is no {kind.__name__}")

    return check


def make_converter() -> Converter:
    """A cattrs converter for JSON that refuses wrong types rather than turning them into others."""
    converter = Converter(forbid_extra_keys=False)
    configure_converter(converter)
    converter.register_unstructure_hook(bytes, lambda value: base64.b64encode(value).decode("ascii"))
    converter.register_structure_hook(bytes, lambda value, _: base64.b64decode(value, validate=True))
    converter.register_unstructure_hook(Decimal, str)
    converter.register_structure_hook(Decimal, lambda value, _: Decimal(value))
    converter.register_unstructure_hook(UUID, str)
    converter.register_structure_hook(UUID, lambda value, _: UUID(value))
    converter.register_unstructure_hook(timedelta, lambda value: value.total_seconds())
    converter.register_structure_hook(timedelta, lambda value, _: timedelta(seconds=value))
    converter.register_unstructure_hook(datetime, lambda value: value.isoformat())
    converter.register_structure_hook(datetime, lambda value, _: _moment(value))
    converter.register_unstructure_hook(date, lambda value: value.isoformat())
    converter.register_structure_hook(date, lambda value, _: date.fromisoformat(value))
    converter.register_unstructure_hook(time, lambda value: value.isoformat())
    converter.register_structure_hook(time, lambda value, _: time.fromisoformat(value))
    for kind in (int, float, str, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    return converter


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text[:-1] + "+00:00" if text.endswith("Z") else text)


def _refuse(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} has no JSON form")


@attrs.frozen
class JsonCodec:
    """JSON, typed by the handler's annotation.

    Takes what JSON holds, and dataclasses, attrs classes, enums, aware and naive datetimes, dates, times, timedeltas
    (seconds), UUIDs, Decimals (text) and bytes (base64) inside them. `converter`: a cattrs converter of one's own.
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
            return json.loads
        structure = self.converter.get_structure_hook(kind)
        return lambda stored: structure(json.loads(stored), kind)


@lru_cache(maxsize=256)
def takes_none(kind: Any) -> bool:
    """Whether a handler annotated with `kind` takes None as its message."""
    return kind in (None, NoneType) or NoneType in getattr(kind, "__args__", ())


def decode_with(decode: Callable[[Any], Any], stored: Any, kind: Any) -> Any:
    """`decode(stored)`, where every way of failing is a `DecodeError` that names the type."""
    try:
        return decode(stored)
    except Exception as error:  # a codec of the user's may raise anything
        name = getattr(kind, "__qualname__", str(kind))
        raise DecodeError(f"the payload does not decode as {name}: {error!r}") from error
