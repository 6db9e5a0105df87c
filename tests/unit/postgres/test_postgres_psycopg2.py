"""A caller's psycopg2 connection: our statements join its transaction, and its settings do not reach them."""

from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

from sqlqueue import Broker, DatabaseClock, column, table
from sqlqueue.dialect import Connection
from sqlqueue.errors import DeclarationError
from sqlqueue_postgres import PostgresDialect, sqlqueue_driver_connection
from tests.support.database import Database
from tests.unit.postgres.helpers import JOBS, SCHEMA, call, compose

if not TYPE_CHECKING:
    pytest.importorskip("psycopg2")

import psycopg2
from psycopg2 import extensions, extras

INSERT = call("INSERT INTO jobs (payload) VALUES (:p) RETURNING payload", 1, p=b"a")
MANY = compose("INSERT INTO jobs (payload) VALUES (:payload)")
PAYLOAD = [JOBS.columns[3]]

ID = UUID("8f14e45f-ceea-467f-a0e6-0d8b1c2c3d4e")
MOMENT = datetime(2030, 5, 1, 12, 30, 15, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))
ODD = "it''s \\' 100% %s %(x)s $1 ?1 :a {x} -- /* ä€😀"


@table("placed", clock=DatabaseClock())
class Placed:
    """A row is due when the database says so."""

    id: UUID = column.id()
    due_at: datetime = column.retry_after()
    error: str | None = column.error()
    payload: str = column.payload()


@pytest.fixture
def jobs(postgres_database: Database) -> Database:
    postgres_database.script(SCHEMA)
    return postgres_database


@pytest.fixture
def theirs(postgres_database: Database) -> Iterator[Any]:
    with closing(psycopg2.connect(postgres_database.url)) as driver:
        yield driver


def adopted(dialect: PostgresDialect, driver: Any) -> Connection:
    assert sqlqueue_driver_connection(driver) is driver
    connection = dialect.adopt(driver)
    assert connection is not None
    assert connection.driver is driver
    return connection


def payloads(database: Database) -> list[Any]:
    return [row[0] for row in database.execute("SELECT payload FROM jobs ORDER BY id")]


def test_the_callers_rollback_undoes_and_its_commit_keeps(
    jobs: Database, dialect: PostgresDialect, theirs: Any
) -> None:
    connection = adopted(dialect, theirs)
    assert connection.run([INSERT, INSERT]) == [[(b"a",)], [(b"a",)]]
    assert connection.insert_many(MANY, JOBS, PAYLOAD, [(b"b",)] * 3) == 3
    assert payloads(jobs) == []
    theirs.rollback()
    connection.run([INSERT])
    theirs.commit()
    assert payloads(jobs) == [b"a"]


def test_many_rows_are_inserted_in_their_order_and_what_follows_them_once(
    jobs: Database, dialect: PostgresDialect, theirs: Any
) -> None:
    rows = [(str(number).encode(),) for number in range(1201)]
    connection = adopted(dialect, theirs)
    assert connection.insert_many(MANY, JOBS, PAYLOAD, iter(rows), then=[INSERT]) == 1201
    assert connection.insert_many(MANY, JOBS, PAYLOAD, [], then=[INSERT]) == 0
    theirs.commit()
    assert payloads(jobs) == [*(row[0] for row in rows), b"a"]


def test_autocommit_commits_all_calls_or_none(jobs: Database, dialect: PostgresDialect, theirs: Any) -> None:
    theirs.autocommit = True
    connection = adopted(dialect, theirs)
    with pytest.raises(psycopg2.errors.DivisionByZero):
        connection.run([INSERT, call("SELECT 1 / 0", 1)])
    assert payloads(jobs) == []
    connection.run([INSERT])
    connection.insert_many(MANY, JOBS, PAYLOAD, [(b"b",)])
    assert payloads(jobs) == [b"a", b"b"]
    with theirs.cursor() as cursor:
        cursor.execute("BEGIN")
        connection.run([INSERT, INSERT])
        cursor.execute("ROLLBACK")
    assert payloads(jobs) == [b"a", b"b"]


def test_a_lost_connection_is_told_as_the_driver_tells_it(
    jobs: Database, dialect: PostgresDialect, theirs: Any
) -> None:
    theirs.autocommit = True
    connection = adopted(dialect, theirs)
    with pytest.raises(psycopg2.OperationalError):
        connection.run([INSERT, call("SELECT pg_terminate_backend(pg_backend_pid())", 1)])
    assert connection.closed
    assert payloads(jobs) == []


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (ODD, "text"),
        (True, "boolean"),
        (-5, "bigint"),
        (2**40, "bigint"),
        (-1.5e-7, "double precision"),
        (float("inf"), "double precision"),
        (Decimal("-12.50"), "numeric"),
        (ID, "uuid"),
        (MOMENT, "timestamp with time zone"),
        (date(1, 1, 1), "date"),
        (time(23, 59, 59, 999999), "time without time zone"),
        (timedelta(days=-3, microseconds=7), "interval"),
        (b"\x00\xff'\\%s", "bytea"),
        (Jsonb({"a": ["'", None, "ü\\"]}), "jsonb"),
        (None, "text"),
        ([1, None, -2], "bigint[]"),
        ([], "bigint[]"),
    ],
    ids=str,
)
def test_a_value_is_written_as_psycopg_3_would_bind_it(
    dialect: PostgresDialect, theirs: Any, postgres_database: Database, value: Any, type_: str
) -> None:
    template = "SELECT (CAST(:v AS {type}))::text, '100% $1 :v', CAST(:v AS {type}) IS NULL".replace("{type}", type_)
    statement = call(template, 3, v=value)
    with Broker(postgres_database.url) as broker, broker.pool.connection() as ours:
        assert adopted(dialect, theirs).run([statement]) == ours.run([statement])


@pytest.mark.parametrize("scs", ["on", "off"])
@pytest.mark.parametrize("encoding", ["UTF8", "LATIN1", "SJIS"])
def test_no_setting_of_the_session_lets_text_out_of_its_quotes(
    dialect: PostgresDialect, theirs: Any, scs: str, encoding: str
) -> None:
    with theirs.cursor() as cursor:
        cursor.execute("SET standard_conforming_strings = %s", [scs])
        cursor.execute("SET escape_string_warning = off")
    theirs.set_client_encoding(encoding)
    signs = {"UTF8": "¥ä€", "LATIN1": "¥ä", "SJIS": "ソ表"}[encoding]
    for text in (signs, f"{signs}' || 'x", f"\\{signs}\\' OR 1=1 --", "\\"):
        [[row]] = adopted(dialect, theirs).run([call("SELECT :t::text, :b", 2, t=text, b=text.encode())])
        assert row == (text, text.encode())


def test_a_sign_that_an_encoding_turns_into_a_backslash_ends_no_quotes(dialect: PostgresDialect, theirs: Any) -> None:
    """Python encodes the yen sign as a backslash in Shift JIS."""
    assert "¥".encode("shift_jis_2004") == b"\\"
    theirs.set_client_encoding("SHIFT_JIS_2004")
    [[row]] = adopted(dialect, theirs).run([call("SELECT :t::text, :u::text", 2, t="¥", u=" || version() || ")])
    assert row[1] == " || version() || "


def test_what_the_program_registered_for_its_own_does_not_reach_us(
    jobs: Database, dialect: PostgresDialect, theirs: Any
) -> None:
    def wrong(*given: Any) -> Any:
        raise AssertionError(given)

    theirs.cursor_factory = extras.RealDictCursor
    for oid in (17, 20, 25, 1184, 2950):
        extensions.register_type(extensions.new_type((oid,), "WRONG", wrong), theirs)
    before = dict(extensions.adapters)
    for kind in (bytes, str, int, UUID, datetime):
        extensions.register_adapter(kind, wrong)
    try:
        asked = call("SELECT :a::bytea, :b::bigint, :c::text, :d::timestamptz, :e::uuid", 5, **dict(_values()))
        assert adopted(dialect, theirs).run([INSERT, asked]) == [[(b"a",)], [tuple(value for _, value in _values())]]
    finally:
        extensions.adapters.clear()
        extensions.adapters.update(before)


def _values() -> list[tuple[str, Any]]:
    return list(zip("abcde", (b"\\", 3, "x", MOMENT, ID), strict=True))


def test_a_type_that_the_driver_alone_knows_is_left_to_it(dialect: PostgresDialect, theirs: Any) -> None:
    span = extras.DateRange(date(2030, 1, 1), date(2030, 2, 1))
    assert adopted(dialect, theirs).run([call("SELECT lower(:s)::text", 1, s=span)]) == [[("2030-01-01",)]]
    with pytest.raises(psycopg2.ProgrammingError, match="can't adapt"):
        adopted(dialect, theirs).run([call("SELECT :s", 1, s=object())])


def test_the_databases_clock_and_a_skip_work_through_it(postgres_database: Database, theirs: Any) -> None:
    with Broker(postgres_database.url) as broker:
        queue = broker.queue(Placed)
        broker.create_tables()
        rows = [Placed(id=UUID(int=number), due_at=None, payload="1") for number in range(3)]  # type: ignore[arg-type]
        assert queue.enqueue(rows[0], delay=60, connection=theirs) == UUID(int=0)
        assert queue.enqueue_many(rows[1:], connection=theirs) == 2
        assert queue.skip(UUID(int=1), connection=theirs) is True
        assert queue.skip(UUID(int=9), connection=theirs) is False
        theirs.commit()
    stored = postgres_database.execute("SELECT error IS NULL, due_at > now() FROM placed ORDER BY id")
    assert stored == [(True, True), (False, False), (True, False)]


def test_one_that_serves_an_event_loop_is_refused(postgres_database: Database, dialect: PostgresDialect) -> None:
    with closing(psycopg2.connect(postgres_database.url, async_=True)) as driver:
        extras.wait_select(driver)
        with pytest.raises(DeclarationError, match="async_"):
            dialect.adopt(driver)
