"""Values both ways, whatever the session or the program has set."""

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import psycopg
import pytest

from sqlqueue.dialect import ColumnFacts, Pool
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec
from sqlqueue_postgres import PostgresDialect
from sqlqueue_postgres.adopted import execute
from sqlqueue_postgres.values import Unreadable
from tests.support.database import Database
from tests.unit.postgres.helpers import call, declared

UTC = timezone.utc
MOMENT = datetime(2024, 5, 6, 7, 8, 9, 123456, UTC)
LIST_OF = """
SELECT _given.value, pg_typeof(_given.value)::text FROM {given}
"""


class Colour(str, Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("kind", "value", "type_"),
    [
        (int, 2**40, "bigint"),
        (int, 1, "bigint"),
        (str, 'a "quoted" \\ {text}', "text"),
        (UUID, UUID(int=5), "uuid"),
        (bytes, b"\0\xff", "bytea"),
        (datetime, MOMENT, "timestamp with time zone"),
        (date, date(2024, 2, 29), "date"),
        (timedelta, timedelta(seconds=1.5), "interval"),
        (float, 0.1, "double precision"),
        (Decimal, Decimal("1.10"), "numeric"),
        (bool, True, "boolean"),
        (dict, {"a": [1, None, "é"]}, "jsonb"),
        (dict[str, Any], {}, "jsonb"),
    ],
)
def test_a_column_of_values_arrives_as_its_type_and_comes_back(
    dialect: PostgresDialect, pool: Pool, kind: Any, value: Any, type_: str
) -> None:
    spec = declared(type=kind)
    encode, decode = dialect.encoder(spec), dialect.decoder(spec)
    template = LIST_OF.replace("{given}", dialect.given({"value": spec}))
    bound = encode(value) if encode else value
    with pool.connection() as connection:
        [rows] = connection.run([call(template, 2, value=[bound, None])])
        [none] = connection.run([call(template, 2, value=[])])
    assert [(decode(rows[0][0]) if decode else rows[0][0]), rows[0][1], rows[1]] == [value, type_, (None, type_)]
    assert none == []


def test_integers_of_all_sizes_share_one_type(pool: Pool) -> None:
    with pool.connection() as connection:
        types = [
            connection.run([call("SELECT pg_typeof(:n)::text, pg_typeof(:l)::text", 2, n=number, l=[number])])[0][0]
            for number in (1, 2**20, 2**40, -1)
        ]
    assert types == [("bigint", "bigint[]")] * 4


def test_an_enum_is_bound_as_its_text_and_read_as_its_member(dialect: PostgresDialect) -> None:
    spec = declared(field="colour", type=Colour)
    encode, decode = dialect.encoder(spec), dialect.decoder(spec)
    assert encode is not None
    assert decode is not None
    assert (type(encode(Colour.RED)), encode(Colour.RED), decode("red")) == (str, "red", Colour.RED)
    with pytest.raises(ValueError, match="blue"):
        decode("blue")


@pytest.mark.parametrize(
    "odd",
    [
        "'infinity'::timestamptz",
        "'-infinity'::timestamptz",
        "'20000-01-01'::timestamptz",
        "'0044-03-15 BC'::timestamptz",
        "'infinity'::timestamp",
        "'infinity'::date",
        "'24:00'::time",
        "('[' || repeat('[', 20000) || repeat(']', 20000) || ']')::json",
        "repeat('9', 5000)::json",
    ],
)
def test_an_odd_value_spoils_its_own_row_only(pool: Pool, dialect: PostgresDialect, odd: str) -> None:
    with pool.connection() as connection:
        connection.run([call("SET max_stack_depth = '6MB'")])
        [rows] = connection.run([call("SELECT 1, " + odd + " UNION ALL SELECT 2, NULL", 2)])
    by_id: dict[int, object] = dict(rows)
    assert by_id[2] is None
    assert isinstance(by_id[1], Unreadable)
    for kind in (datetime, date, dict, Any):
        decode = dialect.decoder(declared(field="x", type=kind))
        assert decode is not None
        with pytest.raises(ValueError, match=r"."):
            decode(by_id[1])


def test_moments_come_as_utc_whatever_the_session_shows(postgres_database: Database, dialect: PostgresDialect) -> None:
    decode = dialect.decoder(declared(field="x", type=datetime))
    assert decode is not None
    with psycopg.connect(postgres_database.url, autocommit=True) as driver:
        driver.execute("SET datestyle = 'SQL, DMY'; SET timezone = 'Asia/Tokyo'")
        [(value,)] = execute(driver, "SELECT $1::timestamptz", (MOMENT,))
    assert (value, value.tzinfo, decode(value)) == (MOMENT, UTC, MOMENT)
    assert decode(MOMENT.astimezone(timezone(timedelta(hours=9)))).tzinfo is UTC
    with pytest.raises(TypeError):
        decode(datetime(2024, 1, 1))  # noqa: DTZ001 - a naive one is refused


@pytest.mark.parametrize("value", ["'a'::jobs_enum", "'{\"a\": 1}'::jsonb", "'::1'::inet", "'a'::varchar"])
def test_text_is_read_from_any_type(postgres_database: Database, dialect: PostgresDialect, value: str) -> None:
    postgres_database.execute("CREATE TYPE jobs_enum AS ENUM ('a')")
    expression = dialect.read(declared(field="x", type=str), value)
    with psycopg.connect(postgres_database.url) as driver:
        [(read,)] = execute(driver, f"SELECT {expression}")
    assert isinstance(read, str)
    assert dialect.read(declared(field="x", type=int), "x") == "x"


def facts(type_: str) -> ColumnFacts:
    return ColumnFacts(type=type_, nullable=True)


def test_a_type_that_cannot_hold_the_declared_one_is_told_with_its_mend(dialect: PostgresDialect) -> None:
    due = declared(field="due", name="Due", type=datetime, role=Role.RETRY_AFTER)
    told = dialect.misfit(due, facts("timestamp without time zone"))
    assert told is not None
    assert 'ALTER COLUMN "Due" TYPE timestamptz' in told
    assert dialect.misfit(due, facts("timestamp with time zone")) is None


@pytest.mark.parametrize("role", [Role.LEASE, Role.PROCESSED_AT])
def test_a_column_that_takes_no_null_is_told_where_its_role_writes_one(dialect: PostgresDialect, role: Role) -> None:
    """SPEC 2: a wrong column stops the consumer at its start, not the row that is given back."""
    empty = ColumnFacts(type="timestamp with time zone", nullable=False)
    told = dialect.misfit(declared(field="held", type=datetime, optional=True, role=role), empty)
    assert told is not None
    assert 'ALTER COLUMN "held" DROP NOT NULL' in told


@pytest.mark.parametrize(
    ("spec", "type_", "fits"),
    [
        (declared(field="id", type=int, role=Role.ID), "uuid", False),
        (declared(field="id", type=int, role=Role.ID), "integer", True),
        (declared(field="id", type=str, role=Role.ID), "uuid", False),
        (declared(field="id", role=Role.ID), "uuid", False),
        (declared(field="due", type=float, role=Role.RETRY_AFTER), "double precision", False),
        (declared(field="due", role=Role.RETRY_AFTER), "timestamp with time zone", True),
        (declared(field="kind", type=str), "app.colour", True),
        (declared(field="kind", type=bytes), "text", False),
        (declared(field="kind"), "tsvector", True),
        (declared(field="kind", type=dict), "json", True),
    ],
)
def test_what_fits(dialect: PostgresDialect, spec: ColumnSpec, type_: str, fits: bool) -> None:
    assert (dialect.misfit(spec, facts(type_)) is None) == fits
