"""The databases that the tests run on are real, fresh, and gone afterwards."""

import threading
from pathlib import Path

import pytest

from tests.support import leftovers
from tests.support.database import Database, psycopg_placeholders
from tests.support.plugin import Servers


def test_every_database_answers(database: Database) -> None:
    assert database.execute("SELECT 1") == [(1,)]


def test_a_question_mark_binds_on_every_database(database: Database) -> None:
    database.script("CREATE TABLE thing (id integer, name text); CREATE INDEX by_name ON thing (name);")
    database.execute("INSERT INTO thing VALUES (?, ?)", 7, "50 %?")
    assert database.execute("SELECT id, name FROM thing WHERE name LIKE '50 %' AND id = ?", 7) == [(7, "50 %?")]


def test_a_connection_commits_by_itself_and_others_see_it(database: Database) -> None:
    database.connect().execute("CREATE TABLE thing (id integer)")
    assert database.execute("SELECT count(*) FROM thing") == [(0,)]


@pytest.mark.parametrize("order", ["first", "second"])
def test_no_test_sees_the_tables_of_another(database: Database, order: str) -> None:
    database.execute("CREATE TABLE own (test text)")
    database.execute("INSERT INTO own VALUES (?)", order)
    assert database.execute("SELECT test FROM own") == [(order,)]


def test_a_sqlite_database_is_a_file_of_the_test(sqlite_database: Database, tmp_path: Path) -> None:
    assert sqlite_database.url == f"sqlite:///{tmp_path}/test.db"
    assert sqlite_database.kind == "sqlite"


def test_a_postgres_database_is_a_schema_named_by_the_url(postgres_database: Database) -> None:
    settings = "SELECT current_schema(), current_setting('application_name')"
    assert postgres_database.execute(settings) == [(postgres_database.name, postgres_database.name)]


def test_an_open_transaction_does_not_keep_a_schema_from_being_dropped(
    postgres_database: Database, postgres_servers: Servers
) -> None:
    server = postgres_servers.get(postgres_database.label)
    with server.schema(abandons=True) as abandoned:
        abandoned.execute("CREATE TABLE thing (id integer)")
        crashed = abandoned.connect()
        abandoned._opened.clear()
        crashed.execute("BEGIN")
        crashed.execute("LOCK TABLE thing")
    crashed.close()
    schemas = postgres_database.execute("SELECT count(*) FROM pg_namespace WHERE nspname = ?", abandoned.name)
    assert schemas == [(0,)]


def test_a_sqlite_connection_left_open_is_seen(sqlite_database: Database) -> None:
    connection = sqlite_database.connect()
    connection.execute("CREATE TABLE thing (id integer)")
    assert sqlite_database.name in leftovers.open_files(Path(sqlite_database.name))
    connection.close()
    assert leftovers.open_files(Path(sqlite_database.name)) == []


def test_a_thread_left_running_is_told_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "GRACE", 0.0)
    end = threading.Event()
    thread = threading.Thread(target=end.wait, name="sqlqueue-forgotten", daemon=True)
    with pytest.raises(AssertionError, match="sqlqueue-forgotten"), leftovers.no_threads_left():
        thread.start()
    end.set()
    thread.join()


def test_placeholders_in_quotes_stay_as_they_are() -> None:
    assert psycopg_placeholders("""SELECT '?%', "a?" WHERE x = ?""") == """SELECT '?%%', "a?" WHERE x = %s"""
