"""A password in a URL is for the server alone."""

import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from sqlqueue import Broker, Consumer, DeclarationError
from sqlqueue.testing import drain
from sqlqueue.testing.contract.harness import created
from sqlqueue.testing.contract.tables import Job
from tests.support.database import Database

SECRET = "p@ss/wörd"
URLS = [
    f"postgresql://jane:{quote(SECRET, safe='')}@127.0.0.1:1/shop",
    f"postgres://jane@127.0.0.1:1/shop?password={quote(SECRET, safe='')}",
]


def _told(error: BaseException | None) -> str:
    """An error with its causes, as people see it."""
    text = []
    while error is not None:
        text += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    return "\n".join(text)


def _assert_hidden(text: str) -> None:
    assert [sign for sign in (SECRET, quote(SECRET, safe=""), "wörd", "w%C3%B6rd") if sign in text] == []


@pytest.mark.parametrize("url", URLS)
def test_a_password_is_in_no_description_log_or_error_of_a_server_that_is_not_there(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """SUITE 18"""
    with Broker(url) as broker, caplog.at_level(logging.DEBUG):
        broker.queue(Job).handler(lambda message: None)
        consumer = Consumer(broker, startup_timeout=0.2)
        with pytest.raises(psycopg.OperationalError) as caught:
            consumer.start()
        health = consumer.health()
        assert health.source == "postgresql://jane@127.0.0.1:1/shop"
        _assert_hidden("\n".join([repr(broker), str(health), repr(broker.queues), _told(caught.value), caplog.text]))


@pytest.mark.parametrize("url", ["postgresql://jane:wörd%zz@127.0.0.1/shop", "postgresql://jane:wörd@[::1/shop"])
def test_a_url_that_cannot_be_read_is_refused_without_its_password(url: str) -> None:
    """SUITE 18: the driver's own message would repeat it."""
    with pytest.raises(DeclarationError) as caught:
        Broker(url)
    _assert_hidden(_told(caught.value))


def _of_a_url(url: str) -> Any:
    return url


def _of_a_pool(url: str) -> Any:
    return ConnectionPool(url, open=False, min_size=1, max_size=4)


@pytest.mark.parametrize("source", [_of_a_url, _of_a_pool])
def test_a_password_is_in_no_description_or_log_of_a_consumer_at_work(
    postgres_database: Database, source: Callable[[str], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """SUITE 18"""
    given = source(f"{postgres_database.url}&password={quote(SECRET, safe='')}")
    if isinstance(given, ConnectionPool):
        given.open()
    try:
        with Broker(given) as broker, caplog.at_level(logging.DEBUG, "sqlqueue"):
            queue = created(broker, Job)

            @queue.handler
            def work(message: Any) -> None:
                raise RuntimeError("broken")

            queue.enqueue("x")
            drain(broker)
            consumer = Consumer(broker)
            _assert_hidden("\n".join([repr(broker), str(consumer.health()), broker.dialect.source, caplog.text]))
    finally:
        if isinstance(given, ConnectionPool):
            given.close()
