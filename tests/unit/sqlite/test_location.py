"""URLs and the hooks that take them."""

import os
import re
import sqlite3
from pathlib import Path

import pytest

from sqlqueue.dialect import Trouble
from sqlqueue.errors import DeclarationError, SchemaError, Unsupported
from sqlqueue_sqlite import database, sqlqueue_dialect, sqlqueue_driver_connection
from sqlqueue_sqlite.database import FORMS
from tests.unit.sqlite.conftest import OpenPool, ask, dialect_of


def test_three_slashes_are_a_path_relative_to_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dialect = dialect_of("sqlite:///shop.db")
    monkeypatch.chdir("/")
    assert dialect.source == str(tmp_path / "shop.db")


def test_four_slashes_are_an_absolute_path() -> None:
    assert dialect_of("sqlite:////srv/shop.db").source == "/srv/shop.db"


def test_paths_are_percent_decoded(tmp_path: Path, open_pool: OpenPool) -> None:
    pool = open_pool(dialect_of(f"sqlite:///{tmp_path}/my%20shop%3F.db"))
    with pool.connection() as connection:
        ask(connection, "SELECT 1")
    assert (tmp_path / "my shop?.db").exists()


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:",
        "sqlite:/",
        "sqlite:///",
        "sqlite:shop.db",
        "sqlite:/shop.db",
        "sqlite://shop.db",
        "sqlite://host/shop.db",
        "sqlite:///shop.db?mode=ro",
        "sqlite:///shop.db#x",
        "sqlite:///a%00b",
        "sqlite:///:memory:",
    ],
)
def test_other_forms_are_refused_with_the_forms_there_are(url: str) -> None:
    with pytest.raises(DeclarationError, match=re.escape(repr(url))) as raised:
        sqlqueue_dialect(url)
    assert FORMS in str(raised.value)


@pytest.mark.parametrize("source", ["postgresql:///x", "mysqlite:///x", None, 7])
def test_what_is_not_sqlite_is_left_to_others(source: object) -> None:
    assert sqlqueue_dialect(source) is None


def test_the_drivers_connection_is_known_as_it_is() -> None:
    connection = sqlite3.connect(":memory:")
    assert sqlqueue_driver_connection(connection) is connection
    assert sqlqueue_driver_connection(object()) is None
    connection.close()


def test_connections_of_one_broker_share_a_database_in_memory(open_pool: OpenPool) -> None:
    pool = open_pool(dialect_of("sqlite://"))
    with pool.connection() as one, pool.connection() as other:
        one.driver.execute("CREATE TABLE t (a)")
        one.driver.execute("INSERT INTO t VALUES (1)")
        assert ask(other, "SELECT a FROM t") == [(1,)]


def test_a_database_in_memory_outlives_its_borrowers(open_pool: OpenPool) -> None:
    pool = open_pool(dialect_of("sqlite://"), size=1)
    with pool.connection() as one:
        one.driver.execute("CREATE TABLE t (a)")
        one.driver.close()
    with pool.connection() as other:
        assert ask(other, "SELECT * FROM t") == []


def test_two_brokers_in_memory_are_apart(open_pool: OpenPool) -> None:
    with open_pool(dialect_of("sqlite://")).connection() as one:
        one.driver.execute("CREATE TABLE t (a)")
    with open_pool(dialect_of("sqlite://")).connection() as other:
        assert ask(other, "SELECT * FROM sqlite_master") == []


def test_a_missing_directory_is_named(tmp_path: Path, open_pool: OpenPool) -> None:
    dialect = dialect_of(f"sqlite:///{tmp_path}/missing/shop.db")
    with pytest.raises(SchemaError, match=re.escape(f"there is no directory {tmp_path}/missing;")) as raised:
        open_pool(dialect).probe()
    assert dialect.classify(raised.value) is Trouble.PERMANENT


def test_a_directory_in_place_of_the_file_is_named(tmp_path: Path, open_pool: OpenPool) -> None:
    with pytest.raises(SchemaError, match=re.escape(f"{tmp_path}: it is a directory")):
        open_pool(dialect_of(f"sqlite:///{tmp_path}")).probe()


def test_a_file_of_another_kind_is_named(tmp_path: Path, open_pool: OpenPool) -> None:
    (tmp_path / "shop.db").write_text("These are not the tables you are looking for." * 100)
    with pytest.raises(sqlite3.DatabaseError, match=re.escape(f"file is not a database: {tmp_path}/shop.db")):
        open_pool(dialect_of(f"sqlite:///{tmp_path}/shop.db")).probe()


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs symbolic links")
def test_the_drivers_own_error_carries_the_path(tmp_path: Path, open_pool: OpenPool) -> None:
    (tmp_path / "loop.db").symlink_to(tmp_path / "loop.db")
    dialect = dialect_of(f"sqlite:///{tmp_path}/loop.db")
    with pytest.raises(sqlite3.OperationalError, match=re.escape(f"{tmp_path}/loop.db")) as raised:
        open_pool(dialect).probe()
    assert dialect.classify(raised.value) is Trouble.LOST


@pytest.mark.parametrize(
    ("url", "version", "needed"), [("sqlite:///{}/a.db", (3, 34, 1), "3.35.0"), ("sqlite://", (3, 35, 5), "3.36.0")]
)
def test_an_old_sqlite_is_refused_by_both_versions(
    url: str,
    version: tuple[int, int, int],
    needed: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    open_pool: OpenPool,
) -> None:
    monkeypatch.setattr(database, "VERSION", version)
    there = ".".join(map(str, version))
    with pytest.raises(Unsupported, match=f"SQLite {re.escape(there)} is too old.*needs {re.escape(needed)}"):
        open_pool(dialect_of(url.format(tmp_path))).probe()
