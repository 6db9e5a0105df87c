"""A record's id as a message carries it: as text, and back."""

from typing import Any
from uuid import UUID

from sqlqueue.spec import ColumnSpec

#: What every database holds in a whole number.
LARGEST = 2**63 - 1


def to_text(id: Any) -> str:
    """The id as text: bytes in hexadecimal digits, everything else as Python writes it."""
    return id.hex() if isinstance(id, bytes) else str(id)


def from_text(column: ColumnSpec, text: str) -> Any:
    """The id that `to_text` wrote, as the declared type has it; anything else is a `ValueError`.

    What no database takes, such as a number of a hundred digits, is refused here: the message is somebody else's, and
    asking for its record would fail each time.
    """
    if issubclass(column.type, str):
        if "\0" in text:
            raise ValueError(f"{text!r:.100} holds a NUL")
        text.encode()
        return text
    id = _read(column.type, text)
    if to_text(id) != text.lower():
        raise ValueError(f"{text!r:.100} is not as an id of column {column.name!r} is written")
    return id


def _read(kind: Any, text: str) -> Any:
    if issubclass(kind, int):
        number = int(text) if len(text) < 20 else LARGEST + 1
        if abs(number) > LARGEST:
            raise ValueError(f"{text!r:.100} is too large")
        return number
    if issubclass(kind, UUID):
        return UUID(text)
    return bytes.fromhex(text)
