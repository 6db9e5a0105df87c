"""A row's headers: a JSON object of strings, in its table and in the delivery."""

import json
from collections.abc import Mapping
from typing import Any

from sqlqueue.errors import DecodeError, EncodeError

#: What header values may be; they are stored as text.
HEADER_TYPES = (str, int, float, bool)

#: The header by which a tracked message names its record, unless another is chosen: what answers to it is another
#: message, and does not inherit it.
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
