"""One round trip: what failed in it, what is left behind, and when it ends."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from sqlqueue_postgres.connection import NoAnswer, Transport
from tests.support.database import Database

PREPARED = b"SELECT count(*) FROM pg_prepared_statements"


@pytest.fixture
def driver(postgres_database: Database) -> Iterator["psycopg.Connection[Any]"]:
    with psycopg.connect(postgres_database.url, autocommit=True) as driver:
        yield driver


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("pipelines", [False, True])
def test_the_error_that_aborted_it_is_raised(
    driver: "psycopg.Connection[Any]", monkeypatch: pytest.MonkeyPatch, named: bool, pipelines: bool
) -> None:
    monkeypatch.setattr(Transport, "pipelines", pipelines)
    transport = Transport(driver, 5, named=named)
    for _ in range(2):
        rows, error = transport.exchange(
            [(b"SELECT $1", (7,)), (b"SELECT 1 / $1", (0,)), (b"SELECT 2", ()), (b"X", ())]
        )
        assert rows == [[(7,)], None, None, None]
        assert isinstance(error, psycopg.errors.DivisionByZero)
        assert transport.exchange([(b"SELECT 1", ())]) == ([[(1,)]], None)


@pytest.mark.parametrize("more", [0, 2])
def test_a_session_that_the_server_ends_says_why(driver: "psycopg.Connection[Any]", more: int) -> None:
    end = b"SELECT pg_terminate_backend(pg_backend_pid())"
    with pytest.raises(psycopg.errors.AdminShutdown):
        Transport(driver, 5, named=True).exchange([(end, ()), *[(b"SELECT 1", ())] * more])
    assert driver.closed


def test_a_value_that_cannot_be_sent_is_an_error_before_anything_is(driver: "psycopg.Connection[Any]") -> None:
    transport = Transport(driver, 5, named=False)
    with pytest.raises(psycopg.ProgrammingError, match="cannot adapt"):
        transport.exchange([(b"CREATE TEMP TABLE made (id int)", ()), (b"SELECT $1", (object(),))])
    assert transport.exchange([(b"SELECT to_regclass('made')::text", ())]) == ([[(None,)]], None)


@pytest.mark.parametrize("pipelines", [False, True])
def test_a_wait_ends_in_time_with_the_connection(
    driver: "psycopg.Connection[Any]", monkeypatch: pytest.MonkeyPatch, pipelines: bool
) -> None:
    monkeypatch.setattr(Transport, "pipelines", pipelines)
    with pytest.raises(NoAnswer, match=r"within 0\.1 s"):
        Transport(driver, 0.1, named=False).exchange([(b"SELECT pg_sleep(1)", ())])
    assert driver.closed


@pytest.mark.parametrize("named", [False, True])
def test_a_statement_is_prepared_once_by_a_name_of_ours_or_not_at_all(
    driver: "psycopg.Connection[Any]", named: bool
) -> None:
    driver.prepare_threshold = 0
    transport = Transport(driver, 5, named=named)
    for _ in range(3):
        assert transport.exchange([(b"SELECT $1", (7,)), (PREPARED, ())]) == ([[(7,)], [(2 * named,)]], None)
    driver.rollback()  # psycopg forgets its own
    assert transport.exchange([(b"SELECT $1", (8,))]) == ([[(8,)]], None)


def test_much_goes_out_and_much_comes_back_at_once(driver: "psycopg.Connection[Any]") -> None:
    big = "x" * 1_000_000
    rows, error = Transport(driver, 30, named=False).exchange([(b"SELECT $1::text", (big,))] * 20)
    assert error is None
    assert rows == [[(big,)]] * 20
