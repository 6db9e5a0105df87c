"""Which rows are due, ahead and ended, whoever wrote them, and by which ranges of an index."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sqlqueue.clock import LONGEST_DELAY, UTC
from sqlqueue.dialect import Connection
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec
from sqlqueue_sqlite import fragments, values
from sqlqueue_sqlite.dialect import SQLiteDialect
from tests.unit.sqlite.conftest import ask

NOW = datetime(2025, 3, 1, 12, 30, tzinfo=UTC)
TEXT = ColumnSpec(field="m", type=datetime, optional=True, role=Role.RETRY_AFTER, default=attrs.NOTHING)
WHOLE = attrs.evolve(TEXT, type=int)
FLOAT = attrs.evolve(TEXT, type=float)

# Every spelling that is due on time; with a blank, only UTC without a Z is.
SPELLINGS: dict[str, Callable[[datetime], str]] = {
    "ours": values.moment_to_text,
    "CURRENT_TIMESTAMP": lambda moment: moment.strftime("%Y-%m-%d %H:%M:%S"),
    "milliseconds": lambda moment: moment.isoformat(" ", "milliseconds")[:23],
    "T and Z": lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
    "T, milliseconds and Z": lambda moment: moment.isoformat("T", "milliseconds")[:23] + "Z",
    "T alone": lambda moment: moment.strftime("%Y-%m-%dT%H:%M:%S"),
    "T, ahead of UTC": lambda moment: moment.astimezone(timezone(timedelta(hours=14))).isoformat("T", "seconds"),
    "T, behind UTC": lambda moment: moment.astimezone(timezone(timedelta(hours=-12))).isoformat("T", "seconds"),
}


def matches(connection: Connection, condition: str, stored: Any, now: Any) -> bool:
    """Whether a row that holds `stored` meets the condition."""
    found = ask(connection, f"SELECT 1 FROM (SELECT :stored AS m) WHERE {condition}", stored=stored, now=now)
    return found == [(1,)]


def met(connection: Connection, conditions: tuple[str, ...], stored: Any, now: Any) -> int:
    """How many of the conditions the row meets."""
    return sum(matches(connection, condition, stored, now) for condition in conditions)


def check(connection: Connection, column: ColumnSpec, stored: Any, now: Any, *, due: bool) -> None:
    assert met(connection, fragments.due("m", column, ":now"), stored, now) == int(due)
    assert matches(connection, fragments.ended("m", column, ":now"), stored, now) is due
    found = [
        value
        for expression, condition in fragments.ahead("m", column, ":now")
        for (value,) in ask(
            connection, f"SELECT {expression} FROM (SELECT :stored AS m) WHERE {condition}", stored=stored, now=now
        )
    ]
    expected = set() if due else {values.read_moment(stored)}
    assert {values.read_moment(value) for value in found} == expected


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("hour", [0, 1, 12, 23])
def test_every_spelling_is_due_on_time(connection: Connection, spelling: str, hour: int) -> None:
    now = NOW.replace(hour=hour)
    for apart in (1, 60, 45 * 60, 7 * 3600, 13 * 3600, 26 * 3600, 3 * 86400):
        for seconds in (apart, 0, -apart):
            moment = now + timedelta(seconds=seconds)
            check(connection, TEXT, SPELLINGS[spelling](moment), values.moment_to_text(now), due=seconds <= 0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(
    spelling=st.sampled_from(sorted(SPELLINGS)),
    now=st.datetimes(datetime(2025, 1, 1), datetime(2026, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    seconds=st.integers(-3 * 86400, 3 * 86400),
)
def test_every_due_row_meets_one_condition_and_no_other_does(
    connection: Connection, spelling: str, now: datetime, seconds: int
) -> None:
    now = now.replace(microsecond=0)
    stored = SPELLINGS[spelling](now + timedelta(seconds=seconds))
    check(connection, TEXT, stored, values.moment_to_text(now), due=seconds <= 0)


def test_our_own_spelling_is_exact_to_the_microsecond(connection: Connection) -> None:
    for microseconds in (-1, 0, 1):
        stored = values.moment_to_text(NOW + timedelta(microseconds=microseconds))
        check(connection, TEXT, stored, values.moment_to_text(NOW), due=microseconds <= 0)


@pytest.mark.parametrize("column", [WHOLE, FLOAT])
def test_numbers_are_compared_as_numbers(dialect: SQLiteDialect, connection: Connection, column: ColumnSpec) -> None:
    encode, encode_now = dialect.encoder(column), dialect.now_encoder(column)
    assert encode is not None
    assert encode_now is not None
    for seconds in (-1, 0, 1):
        check(connection, column, encode(NOW + timedelta(seconds=seconds)), encode_now(NOW), due=seconds <= 0)


def test_a_rounded_up_lease_never_ends_early(dialect: SQLiteDialect, connection: Connection) -> None:
    encode, encode_now = dialect.encoder(WHOLE), dialect.now_encoder(WHOLE)
    assert encode is not None
    assert encode_now is not None
    expiry = NOW + timedelta(milliseconds=200)
    ended = fragments.ended("m", WHOLE, ":now")
    assert not matches(connection, ended, encode(expiry), encode_now(NOW + timedelta(milliseconds=100)))
    assert matches(connection, ended, encode(expiry), encode_now(NOW + timedelta(seconds=1)))


@pytest.mark.parametrize("column", [TEXT, WHOLE, FLOAT])
def test_null_counts_as_long_due_and_never_as_ended(
    dialect: SQLiteDialect, connection: Connection, column: ColumnSpec
) -> None:
    encode = dialect.now_encoder(column)
    assert encode is not None
    moment = f"COALESCE(m, {dialect.earliest(column)})"
    assert met(connection, fragments.due(moment, column, ":now"), None, encode(NOW)) == 1
    assert not matches(connection, fragments.ended("m", column, ":now"), None, encode(NOW))
    assert matches(connection, f"NOT {fragments.ended('m', column, ':now')}", None, encode(NOW))
    for _, condition in fragments.ahead(moment, column, ":now"):
        assert not matches(connection, condition, None, encode(NOW))


@pytest.mark.parametrize("stored", ["", "soon", "2025-02-28T12:00:00+0200", "2025-02-28 12:00:00-xx:00", 7])
def test_what_sqlite_cannot_read_is_due_in_the_end(connection: Connection, stored: object) -> None:
    now = values.moment_to_text(NOW) if stored != "soon" else "t"
    assert met(connection, fragments.due("m", TEXT, ":now"), stored, now) == 1


@pytest.mark.parametrize("column", [TEXT, WHOLE, FLOAT])
def test_the_databases_clock_compares_with_what_we_write(
    dialect: SQLiteDialect, connection: Connection, column: ColumnSpec
) -> None:
    encode = dialect.encoder(column)
    assert encode is not None
    now = fragments.now(column)
    clock = datetime.now(UTC)
    conditions = fragments.due("m", column, now)
    assert met(connection, conditions, encode(clock - timedelta(seconds=2)), None) == 1
    assert met(connection, conditions, encode(clock + timedelta(minutes=1)), None) == 0
    stored = ask(connection, f"SELECT {now}")[0][0]
    assert abs(values.read_moment(stored) - clock) < timedelta(seconds=5)


def now_and_later(connection: Connection, column: ColumnSpec, seconds: float | None) -> tuple[Any, Any]:
    """The database's *now*, to the millisecond, and so much later in the column, both of one statement."""
    ((now, later),) = ask(
        connection, f"SELECT {fragments.now(TEXT)}, {fragments.later(column, ':seconds')}", seconds=seconds
    )
    return values.read_moment(now), later


# The float column holds a julian day's fraction in between, which tells about 40 µs apart.
@pytest.mark.parametrize(
    ("column", "step", "off"),
    [(TEXT, 0.001, 0.0), (WHOLE, 1.0, 0.0), (FLOAT, 0.0, 0.0001)],
    ids=["text", "whole seconds", "float"],
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(seconds=st.integers(0, 10**6) | st.floats(0, 10**9) | st.just(LONGEST_DELAY))
def test_so_many_seconds_later_is_rounded_up_to_what_the_column_holds(
    connection: Connection, column: ColumnSpec, step: float, off: float, seconds: float
) -> None:
    now, stored = now_and_later(connection, column, seconds)
    asked = now + timedelta(seconds=seconds)
    assert timedelta(seconds=-off) <= values.read_moment(stored) - asked <= timedelta(seconds=step + off)
    assert type(stored) is {TEXT: str, WHOLE: int, FLOAT: float}[column]


def test_a_row_that_waits_for_nothing_is_due_by_the_databases_clock_at_once(connection: Connection) -> None:
    for column in (TEXT, FLOAT):
        ((now, later),) = ask(connection, f"SELECT {fragments.now(column)}, {fragments.later(column, ':s')}", s=0)
        assert now == later
    now, later = now_and_later(connection, WHOLE, 0)
    assert later == values.moment_to_whole_seconds(now)


@pytest.mark.parametrize("column", [TEXT, WHOLE, FLOAT])
def test_no_number_of_seconds_gives_no_moment(connection: Connection, column: ColumnSpec) -> None:
    assert now_and_later(connection, column, None)[1] is None


@pytest.mark.parametrize("column", [TEXT, WHOLE])
@pytest.mark.parametrize("moment", ["m", "COALESCE(m, '')"])
def test_each_condition_is_one_range_of_an_index(connection: Connection, column: ColumnSpec, moment: str) -> None:
    connection.driver.execute("CREATE TABLE moments (id INTEGER PRIMARY KEY, m TEXT)")
    connection.driver.execute(f"CREATE INDEX by_moment ON moments ({moment})")
    conditions = [*fragments.due(moment, column, ":now")]
    conditions += [condition for _, condition in fragments.ahead(moment, column, ":now")]
    for condition in conditions:
        plan = ask(
            connection,
            f"EXPLAIN QUERY PLAN SELECT id FROM moments WHERE {condition} ORDER BY {moment} LIMIT 5",
            now=values.moment_to_text(NOW),
        )
        details = [detail for *_, detail in plan]
        assert len(details) == 1, details
        assert re.match(r"SEARCH (TABLE )?moments USING (COVERING )?INDEX by_moment \(", details[0]), details
