"""What aborted a pipeline, where psycopg tells no more than that it was."""

import psycopg
import pytest

from sqlqueue_postgres.adapters import execute
from sqlqueue_postgres.pipeline import pipelined
from tests.support.database import Database


def fail_as_psycopg_does() -> None:
    try:
        raise psycopg.errors.DivisionByZero("division by zero")
    finally:  # it fetches what is left
        raise psycopg.errors.PipelineAborted("pipeline aborted")


def test_the_error_that_aborted_it_is_raised(postgres_database: Database) -> None:
    with psycopg.connect(postgres_database.url, autocommit=True) as driver:
        with pytest.raises(psycopg.errors.DivisionByZero), pipelined(driver):
            fail_as_psycopg_does()
        assert execute(driver, "SELECT 1") == [(1,)]


def test_without_a_reason_that_it_was_aborted_is_raised(postgres_database: Database) -> None:
    with (
        psycopg.connect(postgres_database.url, autocommit=True) as driver,
        pytest.raises(psycopg.errors.PipelineAborted, match="nobody knows"),
        pipelined(driver),
    ):
        raise psycopg.errors.PipelineAborted("nobody knows")
