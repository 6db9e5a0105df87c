"""Values both ways, and any ISO 8601 form of a moment."""

import json
import sqlite3
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any
from uuid import UUID

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sqlqueue.clock import UTC
from sqlqueue.dialect import Connection
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec
from sqlqueue_sqlite import values
from sqlqueue_sqlite.dialect import SQLiteDialect
from tests.unit.sqlite.conftest import ask

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)


class Kind(str, Enum):
    URGENT = "urgent"


class Level(IntEnum):
    HIGH = 9


class Tagged(bytes): ...


def column(kind: Any, role: Role | None = None) -> ColumnSpec:
    return ColumnSpec(field="it", type=kind, role=role, default=attrs.NOTHING)


def through(connection: Connection, spec: ColumnSpec, value: Any) -> Any:
    """`value` encoded, bound, selected and decoded."""
    encode, decode = values.encoder(spec), values.decoder(spec)
    stored = ask(connection, "SELECT :it", it=encode(value) if encode else value)[0][0]
    return decode(stored) if decode else stored


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        (column(datetime), NOON + timedelta(microseconds=123)),
        (column(datetime, Role.LEASE), NOON),
        (column(int, Role.LEASE), NOON),
        (column(float, Role.RETRY_AFTER), NOON + timedelta(microseconds=1)),
        (column(UUID), UUID(int=7)),
        (column(bytes), b"\x00\xff"),
        (column(str), "Füße"),
        (column(bool), True),
        (column(bool), False),
        (column(int), 2**63 - 1),
        (column(Kind), Kind.URGENT),
        (column(Level), Level.HIGH),
        (column(Tagged), Tagged(b"x")),
        (column(float), 0.5),
        (column(Decimal), Decimal("1.10")),
        (column(date), date(2025, 3, 1)),
        (column(dict[str, str], Role.HEADERS), {"a": "Ü"}),
        (column(dict), {"a": [1, None]}),
        (column(list[int]), [1, 2]),
    ],
)
def test_a_value_comes_back_as_it_went(connection: Connection, spec: ColumnSpec, value: Any) -> None:
    back = through(connection, spec, value)
    assert (type(back), back) == (type(value), value)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (NOON, "2025-03-01 12:00:00.000000"),
        (NOON.astimezone(timezone(timedelta(hours=2))), "2025-03-01 12:00:00.000000"),
        (date(2025, 3, 1), "2025-03-01"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("1.10"), "1.10"),
        ({"a": 1}, '{"a": 1}'),
        ([1], "[1]"),
        (b"x", b"x"),
        ("x", "x"),
    ],
)
def test_a_column_of_any_type_stores_by_the_value(value: Any, stored: Any) -> None:
    encode = values.encoder(column(Any))
    assert encode is not None
    assert encode(value) == stored


def test_whole_seconds_are_rounded_up_when_written_and_down_to_compare(dialect: SQLiteDialect) -> None:
    spec = column(int, Role.LEASE)
    encode, now = dialect.encoder(spec), dialect.now_encoder(spec)
    assert encode is not None
    assert now is not None
    moment = NOON + timedelta(microseconds=1)
    whole = int(NOON.timestamp())
    assert (encode(moment), encode(NOON), now(moment), now(NOON)) == (whole + 1, whole, whole, whole)


def test_now_is_encoded_as_moments_are_where_the_column_is_fine(dialect: SQLiteDialect) -> None:
    for kind in (datetime, float):
        spec = column(kind, Role.LEASE)
        assert dialect.now_encoder(spec) is dialect.encoder(spec)


@pytest.mark.parametrize("kind", [datetime, int, float])
def test_a_naive_moment_is_refused(kind: type) -> None:
    encode = values.encoder(column(kind, Role.LEASE))
    assert encode is not None
    with pytest.raises(ValueError, match="names no time zone"):
        encode(datetime(2025, 3, 1))  # noqa: DTZ001


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2025-03-01 12:00:00", NOON),
        ("2025-03-01T12:00:00Z", NOON),
        ("2025-03-01t12:00:00z", NOON),
        ("2025-03-01T12:00Z", NOON),
        ("2025-03-01T13:30:00+01:30", NOON),
        ("2025-03-01T10:00:00-0200", NOON),
        ("2025-03-01 14:00:00 +02", NOON),
        ("2025-03-01 12:00:00.5", NOON + timedelta(milliseconds=500)),
        ("2025-03-01T12:00:00,25Z", NOON + timedelta(milliseconds=250)),
        ("2025-03-01T12:00:00.123456789Z", NOON + timedelta(microseconds=123456)),
        ("2025-03-01", NOON.replace(hour=0)),
        (1740830400, NOON),
        (1740830400.5, NOON + timedelta(milliseconds=500)),
        (datetime(2025, 3, 1, 12), NOON),  # noqa: DTZ001 - as a caller's converter returns it
    ],
)
def test_any_iso_form_is_read(text: object, moment: datetime) -> None:
    assert values.read_moment(text) == moment
    assert values.read_moment(text).utcoffset() == timedelta(0)


@pytest.mark.parametrize("value", ["", "soon", "2025-13-01", "2025-03-01T25:00Z", "12:00", b"2025-03-01", 1e300])
def test_what_is_no_moment_raises(value: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        values.read_moment(value)


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        (bool, 2),
        (int, "abc"),
        (int, b"7"),
        (int, 2.5),
        (int, float("inf")),
        (float, "1,5"),
        (float, b"1.5"),
        (str, b"text"),
        (Kind, "calm"),
        (Kind, b"urgent"),
        (Level, 8),
        (Level, "high"),
        (UUID, "x"),
        (bytes, 7),
        (Tagged, 7),
        (Decimal, "x"),
        (date, "x"),
        (dict, "{"),
        (dict, "[]"),
        (list, "{}"),
        (UUID, 7),
    ],
)
def test_what_cannot_be_read_raises(kind: type, stored: object) -> None:
    decode = values.decoder(column(kind))
    assert decode is not None
    with pytest.raises((ValueError, TypeError, OverflowError)):
        decode(stored)


@pytest.mark.parametrize(
    ("kind", "stored", "read"),
    [(float, 2, 2.0), (int, 2.0, 2), (int, "7", 7), (float, "1.5", 1.5), (str, 7, "7"), (Level, "9", Level.HIGH)],
)
def test_what_affinity_made_of_a_value_comes_back_as_it_is_declared(kind: type, stored: object, read: object) -> None:
    decode = values.decoder(column(kind))
    assert decode is not None
    back = decode(stored)
    assert (type(back), back) == (type(read), read)


def test_a_payload_of_text_is_left_to_its_codec() -> None:
    assert values.decoder(column(str, Role.PAYLOAD)) is None


def test_text_of_plain_sql_is_read_as_bytes() -> None:
    decode = values.decoder(column(bytes, Role.PAYLOAD))
    assert decode is not None
    assert decode("ü") == "ü".encode()


def test_json_has_no_nan() -> None:
    encode = values.encoder(column(dict))
    assert encode is not None
    with pytest.raises(ValueError, match="JSON"):
        encode({"a": float("nan")})


@given(st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(2200, 1, 1), timezones=st.just(UTC)))  # noqa: DTZ001
def test_moments_survive_every_column_and_keep_their_order(moment: datetime) -> None:
    assert values.read_moment(values.moment_to_text(moment)) == moment
    assert values.read_moment(values.moment_to_seconds(moment)) == moment
    assert timedelta(0) <= values.read_moment(values.moment_to_whole_seconds(moment)) - moment < timedelta(seconds=1)
    assert timedelta(0) <= moment - values.read_moment(values.moment_to_seconds_passed(moment)) < timedelta(seconds=1)
    assert len(values.moment_to_text(moment)) == values.WIDTH


def test_the_drivers_adapters_are_never_asked(connection: Connection) -> None:
    asked: list[object] = []

    def adapt(value: Decimal) -> str:
        asked.append(value)
        return "wrong"

    sqlite3.register_adapter(Decimal, adapt)
    try:
        assert through(connection, column(Decimal), Decimal(1)) == 1
        assert through(connection, column(Any), Decimal(1)) == "1"
    finally:
        sqlite3.adapters.pop((Decimal, sqlite3.PrepareProtocol))
    assert asked == []


def test_stored_headers_are_json(connection: Connection) -> None:
    encode = values.encoder(column(str, Role.HEADERS))
    assert encode is not None
    assert json.loads(encode({"a": "b"})) == {"a": "b"}
    assert encode('{"a":"b"}') == '{"a":"b"}'
