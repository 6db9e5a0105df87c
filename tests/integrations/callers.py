"""How services hold a transaction: each kind gives what `enqueue(connection=…)` takes, and how its caller ends it."""

import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from typing import Any

import attrs

from tests.support.availability import installed
from tests.support.database import Database


@attrs.frozen
class Caller:
    """A service in a transaction of its own. `execute` is its own statement there, in words that need no values."""

    connection: Any
    execute: Callable[[str], Any]
    commit: Callable[[], Any]
    rollback: Callable[[], Any]
    #: The driver's error for a row that is there already.
    driver: str = "sqlite3"
    #: Begins the next transaction, where that is not done by the first statement.
    begin: Callable[[], Any] = lambda: None


Kind = Callable[[Database], AbstractContextManager[Caller]]


def _sqlite3(**options: Any) -> Kind:
    @contextmanager
    def opened(database: Database) -> Iterator[Caller]:
        with closing(sqlite3.connect(database.name, timeout=10, **options)) as driver:
            explicit = driver.isolation_level is None or options.get("autocommit") is True

            def begin() -> None:
                if explicit:
                    driver.execute("BEGIN")

            def end(word: str) -> Callable[[], Any]:
                method: Callable[[], Any] = getattr(driver, word)
                return (lambda: driver.execute(word.upper())) if explicit else method

            begin()
            yield Caller(driver, driver.execute, end("commit"), end("rollback"), begin=begin)

    return opened


@contextmanager
def psycopg(database: Database) -> Iterator[Caller]:
    import psycopg

    with closing(psycopg.connect(database.url)) as driver:
        yield Caller(driver, driver.execute, driver.commit, driver.rollback, "psycopg")


@contextmanager
def psycopg2(database: Database) -> Iterator[Caller]:
    import psycopg2

    with closing(psycopg2.connect(database.url)) as driver:

        def execute(sql: str) -> None:
            with driver.cursor() as cursor:
                cursor.execute(sql)

        yield Caller(driver, execute, driver.commit, driver.rollback, "psycopg2")


def sqlalchemy_url(database: Database, driver: str) -> str:
    """The same database, as SQLAlchemy is told of it."""
    if database.kind == "sqlite":
        return f"sqlite:///{database.name}"
    return database.url.replace("postgresql:", f"postgresql+{driver}:")


@contextmanager
def engine_of(database: Database, driver: str, **options: Any) -> Iterator[Any]:
    import sqlalchemy

    engine = sqlalchemy.create_engine(sqlalchemy_url(database, driver), **options)
    yield engine
    engine.dispose()


def sqlalchemy_connection(driver: str) -> Kind:
    @contextmanager
    def opened(database: Database) -> Iterator[Caller]:
        with engine_of(database, driver) as engine, engine.connect() as connection:
            yield Caller(connection, connection.exec_driver_sql, connection.commit, connection.rollback, driver)

    return opened


def sqlalchemy_session(driver: str) -> Kind:
    @contextmanager
    def opened(database: Database) -> Iterator[Caller]:
        import sqlalchemy
        from sqlalchemy.orm import Session

        with engine_of(database, driver) as engine, Session(engine) as session:
            yield Caller(
                session, lambda sql: session.execute(sqlalchemy.text(sql)), session.commit, session.rollback, driver
            )

    return opened


def flask_sqlalchemy(driver: str) -> Kind:
    @contextmanager
    def opened(database: Database) -> Iterator[Caller]:
        import flask
        import sqlalchemy
        from flask_sqlalchemy import SQLAlchemy

        app = flask.Flask(__name__)
        app.config["SQLALCHEMY_DATABASE_URI"] = sqlalchemy_url(database, driver)
        db = SQLAlchemy(app)
        with app.app_context():
            yield Caller(
                db.session,
                lambda sql: db.session.execute(sqlalchemy.text(sql)),
                db.session.commit,
                db.session.rollback,
                driver,
            )
            db.session.remove()
            db.engine.dispose()

    return opened


def django(by_alias: bool) -> Kind:
    @contextmanager
    def opened(database: Database) -> Iterator[Caller]:
        from django.db import connection, connections, transaction

        from tests.integrations.django_site import serving

        with serving(database):
            given = connections["default"] if by_alias else connection
            blocks: list[Any] = []

            def begin() -> None:
                blocks.append(transaction.atomic())
                blocks[-1].__enter__()

            def execute(sql: str) -> None:
                with connection.cursor() as cursor:
                    cursor.execute(sql)

            def commit() -> None:
                blocks.pop().__exit__(None, None, None)

            def rollback() -> None:
                if blocks:
                    error = RuntimeError("the service gives up")
                    blocks.pop().__exit__(RuntimeError, error, None)

            begin()
            yield Caller(
                given, execute, commit, rollback, "sqlite3" if database.kind == "sqlite" else "psycopg", begin=begin
            )
            rollback()

    return opened


def _of_sqlite3() -> Iterator[tuple[str, Kind]]:
    for level in ("", "DEFERRED", "IMMEDIATE", "EXCLUSIVE", None):
        yield f"sqlite3 {level!r}", _sqlite3(isolation_level=level)
    if sys.version_info >= (3, 12):
        for autocommit in (True, False):
            yield f"sqlite3 autocommit={autocommit}", _sqlite3(autocommit=autocommit)


def _of_both(driver: str) -> Iterator[tuple[str, Kind]]:
    if installed("sqlalchemy"):
        yield f"SQLAlchemy Connection on {driver}", sqlalchemy_connection(driver)
        yield f"SQLAlchemy Session on {driver}", sqlalchemy_session(driver)
    if installed("flask", "flask_sqlalchemy"):
        yield f"Flask-SQLAlchemy on {driver}", flask_sqlalchemy(driver)
    if installed("django") and driver != "psycopg2":  # which Django takes only where there is no psycopg
        yield f"Django on {driver}", django(by_alias=False)
        yield f"Django by alias on {driver}", django(by_alias=True)


def _of_postgres() -> Iterator[tuple[str, Kind]]:
    for driver, kind in {"psycopg": psycopg, "psycopg2": psycopg2}.items():
        if installed(driver):
            yield driver, kind
            yield from _of_both(driver)


SQLITE: Mapping[str, Kind] = dict([*_of_sqlite3(), *_of_both("sqlite3")])
POSTGRES: Mapping[str, Kind] = dict(_of_postgres())
