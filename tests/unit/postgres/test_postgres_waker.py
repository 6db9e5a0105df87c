"""Listening, through whatever happens to the connection."""

import queue
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

from sqlqueue.dialect import Hint, Pool, PoolSettings, Waker
from sqlqueue.errors import DeclarationError
from sqlqueue_postgres import PostgresDialect, waker
from tests.support.database import Database
from tests.unit.postgres.helpers import call

EVERYTHING = Hint()
CHANNEL = 'app.Or"ders é'
LISTENERS = "SELECT pid FROM pg_stat_activity WHERE application_name = ? AND query LIKE 'LISTEN%'"


class Heard:
    """The hints, waited for with a limit."""

    def __init__(self) -> None:
        self._hints: queue.Queue[Hint] = queue.Queue()

    def __call__(self, hint: Hint) -> None:
        self._hints.put(hint)

    def next(self, timeout: float = 10) -> Hint:
        return self._hints.get(timeout=timeout)

    def empty(self) -> bool:
        return self._hints.empty()


@pytest.fixture
def heard() -> Heard:
    return Heard()


@contextmanager
def started(dialect: PostgresDialect, pool: Pool, heard: Heard, *channels: str) -> Iterator[Waker]:
    listener = dialect.waker(pool, channels or (CHANNEL,), heard, notify=True)
    assert listener is not None
    listener.start()
    try:
        yield listener
    finally:
        before = monotonic()
        listener.stop()
        assert monotonic() - before < 2


@pytest.fixture(params=["own", "users"])
def listening(request: pytest.FixtureRequest, postgres_database: Database) -> Iterator[tuple[PostgresDialect, Pool]]:
    if request.param == "own":
        dialect = PostgresDialect(postgres_database.url)
        yield dialect, dialect.open_pool(PoolSettings())
        return
    with ConnectionPool(postgres_database.url, min_size=1, max_size=1, open=True) as users:
        dialect = PostgresDialect(users)
        yield dialect, dialect.open_pool(PoolSettings())


def notify(database: Database, channel: str, payload: str) -> None:
    database.execute("SELECT pg_notify(?, ?)", channel, payload)


def test_everything_is_woken_first_and_then_what_is_told(
    postgres_database: Database, listening: tuple[PostgresDialect, Pool], heard: Heard
) -> None:
    with started(*listening, heard, CHANNEL, "other") as listener:
        assert heard.next() == EVERYTHING
        assert not listener.certain
        notify(postgres_database, "other", "")
        notify(postgres_database, "nobody", "x")
        notify(postgres_database, CHANNEL, "gröup")
        assert [heard.next(), heard.next()] == [Hint("other", ""), Hint(CHANNEL, "gröup")]
        assert heard.empty()


def test_a_users_connection_goes_back_deaf(postgres_database: Database, heard: Heard) -> None:
    with ConnectionPool(postgres_database.url, min_size=1, max_size=1, open=True) as users:
        dialect = PostgresDialect(users)
        with started(dialect, dialect.open_pool(PoolSettings()), heard):
            heard.next()
            [(pid,)] = postgres_database.execute(LISTENERS, postgres_database.name)
        with users.connection() as mine:
            assert mine.info.backend_pid == pid
            assert mine.execute("SELECT * FROM pg_listening_channels()").fetchall() == []


def test_a_terminated_listener_is_back_within_two_seconds_each_time(
    postgres_database: Database, listening: tuple[PostgresDialect, Pool], heard: Heard
) -> None:
    with started(*listening, heard):
        assert heard.next() == EVERYTHING
        for number in range(5):
            [(pid,)] = postgres_database.execute(LISTENERS, postgres_database.name)
            before = monotonic()
            postgres_database.execute("SELECT pg_terminate_backend(?, 2000)", pid)
            notify(postgres_database, CHANNEL, str(number))  # while nobody listens
            while heard.next(2) != EVERYTHING:
                continue  # it was back so soon that it heard that
            assert monotonic() - before < 2


def test_trouble_is_logged_once_and_the_return_once(
    postgres_database: Database,
    dialect: PostgresDialect,
    pool: Pool,
    heard: Heard,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level("INFO", "sqlqueue_postgres")
    failed, connect = threading.Semaphore(0), waker.connect

    def refuse(*_: Any) -> Any:
        failed.release()
        raise psycopg.OperationalError("no route\n")

    monkeypatch.setattr("sqlqueue_postgres.waker.connect", refuse)
    with started(dialect, pool, heard):
        for _ in range(3):
            assert failed.acquire(timeout=10)
        monkeypatch.setattr("sqlqueue_postgres.waker.connect", connect)
        assert heard.next() == EVERYTHING
        for _ in range(3):  # a connection that comes and goes
            [(pid,)] = postgres_database.execute(LISTENERS, postgres_database.name)
            postgres_database.execute("SELECT pg_terminate_backend(?, 2000)", pid)
            assert heard.next() == EVERYTHING
    assert [record.levelname for record in caplog.records if record.name == "sqlqueue_postgres.waker"] == [
        "WARNING",
        "INFO",
    ]
    assert "no route" in caplog.messages[0]


class Proxy:
    """Passes bytes on to a server until told to swallow them, as a broken middlebox does."""

    def __init__(self, database: Database) -> None:
        driver = database.connect()
        self._host, self._port = driver.info.host, driver.info.port
        self.swallow = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _server(self) -> socket.socket:
        if not self._host.startswith("/"):
            return socket.create_connection((self._host, self._port))
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{self._host}/.s.PGSQL.{self._port}")
        return server

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = self._server()
            self._open += [client, server]
            swallow = threading.Event()  # lines that come later work
            self.swallow, before = swallow, self.swallow
            if before.is_set():
                swallow.clear()
            for source, target in ((client, server), (server, client)):
                thread = threading.Thread(target=self._pass, args=(source, target, swallow))
                self._threads.append(thread)
                thread.start()

    def _pass(self, source: socket.socket, target: socket.socket, swallow: threading.Event) -> None:
        try:
            while data := source.recv(65536):
                if not swallow.is_set():
                    target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        for each in self._open:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
            finally:
                each.close()
        for thread in self._threads:
            thread.join(5)


def test_a_peer_that_went_silent_is_noticed_and_replaced(
    postgres_database: Database, heard: Heard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waker, "CHECK_EVERY", 0.1)
    monkeypatch.setattr(waker.Listener.ask, "__defaults__", (0.3,))
    proxy = Proxy(postgres_database)
    try:
        dialect = PostgresDialect(f"{postgres_database.url}&host=127.0.0.1&port={proxy.port}")
        with started(dialect, dialect.open_pool(PoolSettings()), heard):
            assert heard.next() == EVERYTHING
            proxy.swallow.set()
            notify(postgres_database, CHANNEL, "lost")
            assert heard.next(5) == EVERYTHING
            notify(postgres_database, CHANNEL, "kept")
            assert heard.next() == Hint(CHANNEL, "kept")
    finally:
        proxy.close()


def test_a_listener_stops_while_it_connects_to_nobody(heard: Heard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:  # takes the connection and never answers
        dialect = PostgresDialect(f"postgresql://x@127.0.0.1:{deaf.getsockname()[1]}/x")
        with started(dialect, dialect.open_pool(PoolSettings()), heard):
            caller, _ = deaf.accept()
        caller.close()
    assert heard.empty()


def test_the_first_retry_is_soon_and_the_later_ones_are_not_too_often() -> None:
    assert 0.05 <= waker.pause(0, listened=False) <= 0.1
    assert 15 <= waker.pause(1000, listened=False) <= 30
    assert 0.25 <= waker.pause(1000, listened=True) <= 0.5


def test_nobody_listens_unless_asked_to(dialect: PostgresDialect, pool: Pool, heard: Heard) -> None:
    assert dialect.waker(pool, (CHANNEL,), heard, notify=False) is None
    assert dialect.waker(pool, (), heard, notify=True) is None


def test_a_notification_runs_with_the_insert_it_tells_of(
    postgres_database: Database, listening: tuple[PostgresDialect, Pool], pool: Pool, heard: Heard
) -> None:
    found = listening[0].notification(CHANNEL, "eu")
    assert found is not None
    template, values = found
    with started(*listening, heard), pool.connection() as connection:
        heard.next()
        both = [call("SELECT 5::bigint", 1), call(template, 1, **values)]
        assert connection.run(both)[0] == [(5,)]
        assert connection.run(both[1:]) == [[("",)]]
        assert [heard.next(), heard.next()] == [Hint(CHANNEL, "eu")] * 2


@pytest.mark.parametrize(("channel", "group"), [("é" * 32, None), ("jobs", "x" * 8000), ("jobs", "stop_worker")])
def test_names_that_a_notification_cannot_carry_are_refused(
    dialect: PostgresDialect, channel: str, group: str | None
) -> None:
    with pytest.raises(DeclarationError, match="notify=True"):
        dialect.check_channel(channel, group)
    dialect.check_channel("x" * 63, "y" * 7999)


@pytest.mark.parametrize("command", [b'LISTEN "a"', b"SELECT pg_sleep(0.2)"])
def test_a_lent_connection_that_was_told_to_stop_in_the_middle_of_a_command_goes_back_open_and_deaf(
    postgres_database: Database, command: bytes
) -> None:
    """A stop that comes while the server has yet to answer."""
    stop = waker.StopSignal()
    stop.set()
    with psycopg.connect(postgres_database.url, autocommit=True) as driver:
        with pytest.raises(waker.StopRequested):
            waker.Listener(pgconn=driver.pgconn, stop=stop, on_hint=Heard()).ask(command)
        waker.unlisten(driver)
        assert not driver.closed
        assert driver.execute("SELECT pg_listening_channels()").fetchall() == []
    stop.close()
