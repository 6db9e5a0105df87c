"""Messages to payloads and back. The default codec writes JSON through cattrs and never evaluates anything."""

import json
from collections.abc import Callable
from functools import lru_cache
from types import NoneType
from typing import Any, Protocol

import attrs
from cattrs import Converter

from sqlqueue.converter import check_union, from_json, make_converter
from sqlqueue.errors import DecodeError, EncodeError


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
        return lambda stored: structure(from_json(stored), kind)


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
