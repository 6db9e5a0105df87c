"""What the default codec refuses, where it is enqueued or where it is read, rather than turn it into something else."""

import enum
from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any, Optional, Union
from uuid import UUID

import attrs
import pytest

from sqlqueue import Broker, DeclarationError, EncodeError, JsonCodec
from sqlqueue.codec import takes_none
from tests.unit.declared import Job

CODEC = JsonCodec()


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


@attrs.frozen
class Line:
    text: str
    price: Decimal


@attrs.frozen
class Note:
    note: str


@attrs.frozen
class Mixed:
    """Fields whose members look alike in JSON, in part."""

    moment: Union[datetime, str, None] = None  # noqa: UP007 - the old spelling is read as well
    number: int | float | bool | str | None = None
    colour: Colour | int = 0
    what: Line | Note | None = None
    all: "list[Line | Note | str]" = attrs.field(factory=list)
    odd: list[int] | Line | None = None


# -- what is refused at enqueue ---------------------------------------------------------------------------------


@attrs.frozen
class Day:
    day: date


class Shape(enum.Enum):
    SQUARE = (1, 1)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (float("nan"), "Out of range float values are not JSON compliant"),
        ([float("inf")], "Out of range float values are not JSON compliant"),
        ({float("nan"): 1}, "Out of range float values are not JSON compliant"),
        (Decimal("NaN"), "Decimal('NaN') is no number"),
        (Decimal("sNaN"), "Decimal('sNaN') is no number"),
        (timedelta.max, "is too long to be kept to the microsecond as seconds"),
        (Day(datetime(2030, 1, 1, tzinfo=timezone.utc)), "is a moment in place of a date"),
        (Shape.SQUARE, "stands for a tuple; give its members text or numbers"),
        (1j, "complex has no JSON form"),
        ({1, 2}, "set has no JSON form"),
        (object(), "object has no JSON form"),
        (lambda: None, "function has no JSON form"),
        (bytearray(b"x"), "bytearray has no JSON form"),
        ({(1, 2): 3}, "unhashable type"),
        (Line("a", "1.10"), "'str' object has no attribute 'is_nan'"),  # type: ignore[arg-type]
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],  # without addresses: all workers call it the same
)
def test_what_json_cannot_hold_is_refused_with_the_reason_and_the_mend(message: Any, why: str) -> None:
    with pytest.raises(EncodeError) as caught:
        CODEC.encode(message)
    said = str(caught.value)
    assert said.startswith(f"a message of type {type(message).__qualname__} cannot be stored as JSON: ")
    assert why in said
    assert said.endswith("; use types that JsonCodec lists, or give the broker a codec that knows it")


def test_a_message_that_holds_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(EncodeError, match="a message of type list cannot be stored as JSON"):
        CODEC.encode(loop)


# -- unions -----------------------------------------------------------------------------------------------------

NOON = datetime(2030, 1, 1, 12, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "message",
    [
        Mixed(moment="noon"),
        Mixed(number=1),
        Mixed(number=1.0),
        Mixed(number=True),
        Mixed(number="1"),
        Mixed(colour=3),
        Mixed(colour=Colour.RED),
        Mixed(what=Line("a", Decimal(1))),
        Mixed(what=Note("a")),
        Mixed(all=[Line("a", Decimal(1)), Note("b"), "c"]),
    ],
    ids=str,
)
def test_a_member_of_a_union_that_comes_back_the_same_is_taken(message: Mixed) -> None:
    """PAINS 30"""
    assert repr(CODEC.decoder(Mixed)(CODEC.encode(message))) == repr(message)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Mixed(moment=NOON), "would come back as '2030-01-01T12:00:00+00:00'"),
        (Mixed(colour=Colour.BLUE), "would come back as 2"),
        (Mixed(odd=[1]), "Unsupported type"),
    ],
    ids=str,
)
def test_a_member_of_a_union_that_would_come_back_as_another_is_refused(message: Mixed, why: str) -> None:
    """PAINS 30"""
    with pytest.raises(EncodeError) as caught:
        CODEC.encode(message)
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (datetime | str, "datetime and str look alike in JSON"),
        (UUID | str | None, "UUID and str look alike in JSON"),
        (bytes | str, "bytes and str look alike in JSON"),
        (Colour | int, "Colour and int look alike in JSON"),
        (Level | int, "Level and int look alike in JSON"),
        (timedelta | float, "timedelta and float look alike in JSON"),
        (datetime | UUID, "Unsupported type"),
        (list[int] | Line, "Line cannot be decoded: "),
    ],
    ids=str,
)
def test_a_handler_annotated_with_a_union_whose_members_look_alike_is_refused(kind: Any, why: str) -> None:
    """PAINS 30"""

    def take(message): ...  # type: ignore[no-untyped-def]

    take.__annotations__["message"] = kind
    with Broker("sqlite://") as broker, pytest.raises(DeclarationError) as caught:
        broker.queue(Job).handler(take)
    assert str(caught.value).startswith("messages annotated as ")
    assert why in str(caught.value)


@pytest.mark.parametrize("kind", [datetime | int, Decimal | float, Line | Note | None, Colour | bool, bytes | None])
def test_a_union_whose_members_are_told_apart_in_json_is_taken(kind: Any) -> None:
    assert callable(CODEC.decoder(kind))


# -- what is refused when it is read ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (int, b'"7"'),
        (int, b"7.0"),
        (int, b"true"),
        (float, b'"7"'),
        (str, b"7"),
        (bool, b"1"),
        (bytes, b'"x"'),
        (bytes, b'"\xc3\xbc"'),
        (UUID, b'"x"'),
        (date, b'"2030-01-01T00:00:00"'),
        (Decimal, b"true"),
        (Colour, b'"green"'),
        (Level, b'"1"'),
        (Line, b'{"text": "a"}'),
        (Line, b'{"text": 1, "price": "1"}'),
        (list[int], b'["a"]'),
        (list[str], b'"abc"'),
        (list, b'"abc"'),
        (tuple[str, str], b'"ab"'),
        (frozenset[str], b'{"a": 1}'),
        (list[list[str]], b'["abc"]'),
        (Sequence[str] | None, b'"abc"'),
        (dict, b'[["a", 1]]'),
        (dict[str, int], b'[["a", 1]]'),
        (dict[int, str], b'{"a": "b"}'),
        (Any, b"NaN"),
        (Any, b"[Infinity, -Infinity]"),
        (float, b"NaN"),
        (Any, b""),
        (Any, b"{'a': 1}"),
        (Any, b"\xff"),
    ],
    ids=str,
)
def test_a_stored_value_of_another_type_is_refused_rather_than_turned_into_it(kind: Any, stored: bytes) -> None:
    decode = CODEC.decoder(kind)
    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is, the reader makes it a DecodeError
        decode(stored)


@pytest.mark.parametrize(
    ("kind", "takes"),
    [(None, True), (type(None), True), (int | None, True), (Optional[Line], True), (int, False), (Any, False)],  # noqa: UP045
)
def test_whether_a_handler_takes_none_is_told_by_its_annotation(kind: Any, takes: bool) -> None:
    assert takes_none(kind) is takes
