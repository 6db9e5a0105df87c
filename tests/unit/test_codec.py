"""The default codec: what is enqueued comes back exactly, or is refused where it is enqueued (PAINS 30)."""

import dataclasses
import enum
import json
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Optional
from uuid import UUID

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sqlqueue import JsonCodec

CODEC = JsonCodec()

OFFSETS = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
ZONES = st.none() | OFFSETS
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


class Colour(enum.Enum):
    RED = "red"
    BLUE = 2
    DIM = 0.5


class Level(enum.IntEnum):
    LOW = 1


class Word(str, enum.Enum):
    YES = "yes"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Name(str):
    """Text of a kind of its own."""


class Pair(NamedTuple):
    left: int
    right: date


@attrs.frozen
class Line:
    text: str
    price: Decimal
    colour: Colour = Colour.RED
    _hidden: bytes = b""


@dataclasses.dataclass
class Order:
    id: UUID
    at: datetime
    day: date
    lines: list[Line]
    by_day: dict[date, Decimal]
    by_number: dict[int, str]
    note: Optional[str]  # noqa: UP045 - the old spelling is read as well
    parent: "Order | None" = None
    pair: tuple[int, str] = (1, "a")
    rest: tuple[float, ...] = ()
    tags: set[str] = dataclasses.field(default_factory=set)
    days: frozenset[date] = frozenset()
    until: timedelta = timedelta(0)
    level: Level = Level.LOW
    word: Word = Word.YES


def back(kind: Any, message: Any) -> Any:
    return CODEC.decoder(kind)(CODEC.encode(message))


def same(kind: Any, message: Any) -> None:
    """The message comes back, equal and of the same type."""
    got = back(kind, message)
    assert (type(got), got) == (type(message), message)


DECIMALS = st.decimals(allow_nan=False)
AWARE = st.datetimes(timezones=OFFSETS)
LINES = st.builds(Line, st.text(), DECIMALS, st.sampled_from(Colour), st.binary())
ORDERS = st.builds(
    Order,
    id=st.uuids(),
    at=AWARE,
    day=st.dates(),
    lines=st.lists(LINES, max_size=2),
    by_day=st.dictionaries(st.dates(), DECIMALS, max_size=2),
    by_number=st.dictionaries(st.integers(), st.text(), max_size=2),
    note=st.none() | st.text(),
    rest=st.lists(FLOATS, max_size=2).map(tuple),
    tags=st.sets(st.text(), max_size=2),
    days=st.frozensets(st.dates(), max_size=2),
    until=st.timedeltas(timedelta(days=-10_000), timedelta(days=10_000)),
)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (datetime, st.datetimes(timezones=ZONES)),
        (date, st.dates()),
        (time, st.times(timezones=ZONES)),
        (timedelta, st.timedeltas(timedelta(days=-90_000), timedelta(days=90_000))),
        (UUID, st.uuids()),
        (Decimal, DECIMALS),
        (bytes, st.binary()),
        (str, st.text(st.characters())),
        (int, st.integers()),
        (float, FLOATS),
        (bool, st.booleans()),
        (Colour, st.sampled_from(Colour)),
        (Level, st.sampled_from(Level)),
        (Word, st.sampled_from(Word)),
        (Rights, st.sampled_from([*Rights, Rights.READ | Rights.WRITE, Rights(0)])),
        (Line, LINES),
        (Order, st.builds(dataclasses.replace, ORDERS, parent=st.none() | ORDERS)),
        (Pair, st.builds(Pair, st.integers(), st.dates())),
        (list[Line], st.lists(LINES, max_size=3)),
        (dict[UUID, datetime], st.dictionaries(st.uuids(), AWARE, max_size=3)),
        (dict[int, bytes], st.dictionaries(st.integers(), st.binary(), max_size=3)),
        (
            dict[float, int],
            st.dictionaries(FLOATS, st.integers(), max_size=3),
        ),
        (dict[bool, int], st.dictionaries(st.booleans(), st.integers())),
        (dict[Colour, int], st.dictionaries(st.sampled_from([Colour.RED]), st.integers())),
        (dict[Level, int], st.dictionaries(st.sampled_from(Level), st.integers())),
        (tuple[int, str], st.tuples(st.integers(), st.text())),
        (tuple[date, ...], st.lists(st.dates(), max_size=3).map(tuple)),
        (datetime | None, st.none() | AWARE),
        (Line | None, st.none() | LINES),
        (Literal["a", 1], st.sampled_from(["a", 1])),
        (
            Any,
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.text() | FLOATS,
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
                max_leaves=8,
            ),
        ),
    ],
    ids=lambda part: None if isinstance(part, st.SearchStrategy) else str(part),
)
@settings(max_examples=25)
@given(data=st.data())
def test_what_is_enqueued_comes_back_the_same(kind: Any, values: "st.SearchStrategy[Any]", data: st.DataObject) -> None:
    same(kind, data.draw(values))


def test_the_stored_form_is_the_json_that_others_would_write() -> None:
    order = Order(
        id=UUID(int=1),
        at=datetime(2030, 1, 1, tzinfo=timezone.utc),
        day=date(2030, 1, 2),
        lines=[Line("a", Decimal("1.10"), Colour.BLUE, b"\0\xff")],
        by_day={date(2030, 1, 1): Decimal(1)},
        by_number={1: "a"},
        note=None,
        tags={"x"},
        until=timedelta(seconds=1.5),
    )
    assert json.loads(CODEC.encode(order)) == {
        "id": "00000000-0000-0000-0000-000000000001",
        "at": "2030-01-01T00:00:00+00:00",
        "day": "2030-01-02",
        "lines": [{"text": "a", "price": "1.10", "colour": 2, "_hidden": "AP8="}],
        "by_day": {"2030-01-01": "1"},
        "by_number": {"1": "a"},
        "note": None,
        "parent": None,
        "pair": [1, "a"],
        "rest": [],
        "tags": ["x"],
        "days": [],
        "until": 1.5,
        "level": 1,
        "word": "yes",
    }


@pytest.mark.parametrize(
    "stored", [b'"2030-01-01T00:00:00Z"', b'"2030-01-01T00:00:00+00:00"', '"2030-01-01T00:00:00Z"']
)
def test_a_moment_that_others_wrote_is_read(stored: Any) -> None:
    assert CODEC.decoder(datetime)(stored) == datetime(2030, 1, 1, tzinfo=timezone.utc)


@pytest.mark.parametrize(("stored", "value"), [(b"1.1", "1.1"), (b"7", "7"), (b'"1e2"', "1E+2")])
def test_a_decimal_that_others_wrote_as_a_number_keeps_its_digits(stored: bytes, value: str) -> None:
    assert str(CODEC.decoder(Decimal)(stored)) == value


def test_text_of_a_kind_of_its_own_is_that_kind_again() -> None:
    same(Name, Name("x"))
