"""What plugins bring is found by the name of the URL's scheme, and what is missing is told with its mend."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sqlqueue import Broker, DialectNotFound
from sqlqueue.dialect import Dialect
from sqlqueue.hookspecs import hookimpl
from sqlqueue.plugins import dialect_for, manager
from sqlqueue_sqlite import SQLiteDialect

LIMIT = 60.0

# A machine on which psycopg is not installed.
WITHOUT_PSYCOPG = """
import sys
sys.modules["psycopg"] = None
from sqlqueue import Broker, DialectNotFound
print(Broker("sqlite://"))
try:
    Broker("postgresql://shop:secret@db/shop")
except DialectNotFound as error:
    print(error)
print(any(name.startswith("psycopg") and module for name, module in sys.modules.items()))
"""


class Plugin:
    """A dialect for the scheme `memo`, which is SQLite's in memory."""

    @hookimpl
    def sqlqueue_dialect(self, source: Any) -> Dialect | None:
        return dialect_for("sqlite://") if str(source).startswith("memo:") else None


@pytest.fixture
def plugin() -> Iterator[Plugin]:
    plugin = Plugin()
    manager().register(plugin)
    yield plugin
    manager().unregister(plugin)


def refusal(source: Any) -> str:
    with pytest.raises(DialectNotFound) as caught:
        Broker(source)
    return str(caught.value)


def test_an_unknown_scheme_is_refused_with_those_that_are_installed() -> None:
    said = refusal("mysql://shop:secret@db/shop")
    assert said.startswith("nothing installed serves the URL scheme 'mysql'; installed are: ")
    assert "sqlite://" in said


@pytest.mark.parametrize("source", ["shop.db", "", "sqlite:", "./shop.db"])
def test_what_is_no_url_is_refused_with_what_one_begins_with(source: str) -> None:
    said = refusal(source)
    assert said.startswith(f"{source!r} is no database URL; it begins with one of: ")
    assert "sqlite://" in said


@pytest.mark.parametrize(
    "source",
    ["mysql://shop:secret@db/shop", "host=db user=shop password=secret", "shop:secret@db/shop"],
)
def test_no_refusal_repeats_a_password(source: str) -> None:
    """SUITE 18"""
    assert "secret" not in refusal(source)


@pytest.mark.parametrize("source", [None, 3, object(), b"sqlite://"])
def test_what_is_neither_a_url_nor_a_pool_is_refused_by_its_type(source: Any) -> None:
    assert f"nothing installed serves builtins.{type(source).__qualname__}" in refusal(source)


def test_a_missing_driver_is_told_with_the_extra_that_brings_it_and_keeps_nobody_from_sqlite() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PSYCOPG], capture_output=True, text=True, timeout=LIMIT, check=True
    )
    sqlite, postgres, loaded = done.stdout.splitlines()
    assert "in memory" in sqlite
    assert postgres.startswith("nothing installed serves the URL scheme 'postgresql'; installed are: ")
    assert postgres.endswith("(pip install 'sqlqueue[postgres]')")
    assert "secret" not in postgres
    assert loaded == "False"


def test_a_plugin_that_is_registered_by_hand_serves_its_scheme(plugin: Plugin) -> None:
    with Broker("memo://x") as broker:
        assert isinstance(broker.dialect, SQLiteDialect)


def test_a_plugin_is_asked_once_for_a_source_and_the_first_answer_counts(plugin: Plugin) -> None:
    assert isinstance(dialect_for("sqlite://"), SQLiteDialect)
    manager().unregister(plugin)
    assert refusal("memo://x").startswith("nothing installed serves the URL scheme 'memo'")
    manager().register(plugin)
