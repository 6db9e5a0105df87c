"""The broker's connections: a pool of our own, opened at first use, or the user's."""

import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import quote as url_quote

import attrs
import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from sqlqueue.dialect import PoolSettings
from sqlqueue.errors import DeclarationError, Unsupported
from sqlqueue_postgres.adopted import execute
from sqlqueue_postgres.connection import GRACE, LIMIT_TIME, PooledConnection, Transport, ready
from sqlqueue_postgres.loan import AS_IT_CAME, RESTORE, Driver, OwnLoan, UsersLoan
from sqlqueue_postgres.sessions import check_own_sessions

# For the session, so that a statement of ours needs no prelude.
SET_UP = """
SELECT set_config('default_transaction_isolation', 'read committed', false),
       set_config('statement_timeout', $1, false)
"""

# Each statement of ours is made for an index, and its plan is kept: one that was made while the table was nearly empty
# would read all of it, or sort all that is due, in every turn until autovacuum next analyses it (1,300 rows a second
# instead of 5,000 at 3,000 rows, and fewer with each further one). `jit`: where there is no index after all, the price
# of a plan that was to be avoided would have it compiled each time.
KEEP_TO_INDEXES = """
SELECT set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false),
       set_config('jit', 'off', false)
"""

#: What a URL that does not say otherwise connects with. A peer that went silent is noticed after 25 s.
DEFAULTS: Mapping[str, Any] = {
    "fallback_application_name": "sqlqueue",
    "connect_timeout": 10,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


def parameters(url: str) -> dict[str, Any]:
    """What to connect with, beside the URL: the defaults that it leaves open."""
    given = conninfo_to_dict(url)
    return {name: value for name, value in DEFAULTS.items() if name not in given}


def read_url(conninfo: str) -> dict[str, Any]:
    """The connection parameters of a URL, or of a pool's conninfo."""
    try:
        found = conninfo_to_dict(conninfo)
    except psycopg.ProgrammingError:
        found = None  # the driver's message repeats the URL, and with it the password
    # A host that begins with an @ is an abstract socket; elsewhere the sign is a password's.
    if found is None or "@" in str(found.get("host", ""))[1:]:
        raise DeclarationError(
            "the PostgreSQL URL cannot be read; write postgresql://user:password@host:port/database, "
            "with signs such as @ or / in the password percent-encoded"
        )
    return found


def shown(parameters: Mapping[str, Any]) -> str:
    """The URL of these connection parameters, without any that could be secret."""
    part = {name: url_quote(str(value), safe=",:[]") for name, value in parameters.items() if value is not None}
    user = f"{part['user']}@" if "user" in part else ""
    port = f":{part['port']}" if "port" in part else ""
    return f"postgresql://{user}{part.get('host', part.get('hostaddr', ''))}{port}/{part.get('dbname', '')}"


def in_milliseconds(seconds: float) -> str:
    return str(round(seconds * 1000))


class OwnDriver(psycopg.Connection[Any]):
    """A connection of our own pool. `pooled` is it as it is lent, once its session is set up."""

    pooled: PooledConnection


AnyDriver = TypeVar("AnyDriver", bound=Driver)


def take(pool: ConnectionPool[AnyDriver], timeout: float | None, probe: Callable[[], None]) -> AnyDriver:
    """The first connection whose server has not hung up: after a restart a pool is full of those that have.

    `probe` raises where the server is not there; the pool would wait for it, and then say that it has nothing to lend.
    """
    until = monotonic() + (pool.timeout if timeout is None else timeout)
    while True:
        try:
            driver = pool.getconn(max(until - monotonic(), 0.001))
        except PoolTimeout:
            probe()
            raise
        try:  # The server's farewell is read first, the end of the stream behind it by the second look.
            for _ in range(3):
                if not driver.closed and not ready(driver.pgconn.socket, 0):
                    return driver
                driver.pgconn.consume_input()
            if not driver.closed:
                return driver
        except psycopg.OperationalError:
            driver.close()
        pool.putconn(driver)
        probe()


@attrs.define(eq=False)
class OwnPool:
    """Connections to a URL. It sets up its sessions, so it refuses a pooler that does not keep them. A forked child
    opens its own connections and leaves its parent's alone."""

    _url: str = attrs.field(alias="url")
    _settings: PoolSettings = attrs.field(alias="settings")
    _opened: ConnectionPool[OwnDriver] | None = attrs.field(default=None, init=False)
    _process: int = attrs.field(factory=os.getpid, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _reached: bool = attrs.field(default=False, init=False)
    _sessions_kept: bool = attrs.field(default=False, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False, repr=False)

    @property
    def size(self) -> int:
        return self._settings.size

    @property
    def key_locks(self) -> None:
        """Sessions have locks."""
        return None

    def probe(self) -> None:
        self._reached = False
        with self.beside() as driver:
            if not self._sessions_kept:
                # Before one is set up: others behind the same pooler would get our settings, and we would not.
                check_own_sessions(driver, self.beside)
                self._sessions_kept = True
        self._reached = True

    def beside(self) -> OwnDriver:
        """A connection that is not one of the pool's, in autocommit mode and not set up; the caller closes it."""
        return OwnDriver.connect(self._url, autocommit=True, **parameters(self._url))

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[PooledConnection]:
        pool = self._opened
        if pool is None or self._process != os.getpid():
            pool = self._open()
        if not self._reached:
            self.probe()  # it says at once why it fails; the pool would only say, late, that it got no connection
        driver = take(pool, timeout, self.probe)
        try:
            yield driver.pooled
        finally:
            driver.pooled.roll_back()
            self._reached = not driver.closed
            pool.putconn(driver)

    @contextmanager
    def direct(self) -> Iterator[PooledConnection]:
        with self.beside() as driver:
            self._set_up(driver)
            yield driver.pooled

    def close(self) -> None:
        """Close the connections; those that are lent, when they come back."""
        with self._lock:
            opened, self._opened, self._closed = self._opened, None, True
        if opened is not None and self._process == os.getpid():
            opened.close()

    def _open(self) -> ConnectionPool[OwnDriver]:
        with self._lock:
            if self._closed:
                raise PoolClosed("the broker's pool was closed")
            if self._opened is not None and self._process != os.getpid():
                _INHERITED.append(self._opened)
                self._opened = None
            if self._opened is None:
                self._process = os.getpid()
                self._opened = self._pool()
            return self._opened

    def _pool(self) -> ConnectionPool[OwnDriver]:
        pool: ConnectionPool[OwnDriver] = ConnectionPool(
            self._url,
            connection_class=OwnDriver,
            kwargs={"autocommit": True, **parameters(self._url)},
            configure=self._set_up,
            min_size=0,
            max_size=self._settings.size,
            # Who needs a connection tries again. The pool's own tries would come ever later, long after the server.
            reconnect_timeout=0,
            name="sqlqueue",
            open=False,
        )
        pool.open()
        return pool

    def _set_up(self, driver: OwnDriver) -> None:
        seconds = self._settings.statement_timeout
        driver.prepare_threshold = None  # psycopg would forget all prepared statements at a rollback, ours too
        (came,) = execute(driver, AS_IT_CAME)
        execute(driver, KEEP_TO_INDEXES)
        execute(driver, SET_UP, (in_milliseconds(seconds),))
        transport = Transport(driver, seconds + GRACE, named=True)
        driver.pooled = PooledConnection(driver, transport, OwnLoan([(RESTORE, came)], driver))


#: Pools that a forked child got from its parent: kept, because their end would wait for threads that are not here.
_INHERITED: list[ConnectionPool[OwnDriver]] = []


@attrs.define(eq=False)
class UsersPool:
    """The user's pool. Its connections go back as they came, and it is theirs to open and to close."""

    pool: ConnectionPool[Driver]
    _settings: PoolSettings = attrs.field(alias="settings")

    def __attrs_post_init__(self) -> None:
        _KNOWN.add(self.pool)

    @property
    def size(self) -> int:
        return self.pool.max_size

    @property
    def key_locks(self) -> None:
        """Sessions have locks."""
        return None

    def probe(self) -> None:
        self.check()
        self.beside().close()

    def beside(self) -> Driver:
        """A connection that is not one of the pool's, in autocommit mode; the caller closes it."""
        conninfo, kwargs = connect_arguments(self.pool)
        return self.pool.connection_class.connect(conninfo, **{**kwargs, "autocommit": True})

    @contextmanager
    def connection(self, timeout: float | None = None) -> Iterator[PooledConnection]:
        self.check()
        driver = take(self.pool, timeout, self.probe)
        try:
            with self._lent(driver) as lent:
                yield lent
        finally:
            self.pool.putconn(driver)

    @contextmanager
    def direct(self) -> Iterator[PooledConnection]:
        self.check()
        with self.beside() as driver, self._lent(driver) as lent:
            yield lent

    @contextmanager
    def _lent(self, driver: Driver) -> Iterator[PooledConnection]:
        """In autocommit mode for the while; the user's own mode afterwards. Nothing is prepared, nor set for longer
        than a transaction: a pooler may hand the server's session on between two of them."""
        seconds = self._settings.statement_timeout
        limit = [(LIMIT_TIME, (in_milliseconds(seconds),))]
        lent = PooledConnection(driver, Transport(driver, seconds + GRACE, named=False), UsersLoan(driver), limit)
        autocommit = driver.autocommit
        if not autocommit:
            driver.autocommit = True
        try:
            yield lent
        finally:
            lent.roll_back()
            if not autocommit and not driver.closed:
                driver.autocommit = False

    def close(self) -> None:
        """Nothing: the pool is the user's."""

    def check(self) -> None:
        """Raise where the pool cannot be used, saying what to do."""
        if self.pool in _FORKED:
            raise Unsupported(
                f"the pool {self.pool.name!r} was opened before this process was forked, and connections cannot be "
                "shared; open it in each process after the fork, or give the broker a URL"
            )
        if self.pool.closed:
            raise PoolClosed(
                f"the pool {self.pool.name!r} is not open; it is yours: call its open() before the broker is used, "
                "and close() after the broker's"
            )


#: The users' pools in this process, and those of them that were open when it was forked.
_KNOWN: "weakref.WeakSet[ConnectionPool[Any]]" = weakref.WeakSet()
_FORKED: "weakref.WeakSet[ConnectionPool[Any]]" = weakref.WeakSet()


def _forked() -> None:
    for pool in list(_KNOWN):
        if not pool.closed:
            _FORKED.add(pool)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def connect_arguments(pool: ConnectionPool[Any]) -> tuple[str, dict[str, Any]]:
    """What the pool connects with; psycopg_pool 3.3 takes functions as well."""
    conninfo, kwargs = pool.conninfo, pool.kwargs
    return (
        conninfo() if callable(conninfo) else conninfo or "",
        dict(kwargs() if callable(kwargs) else kwargs or {}),
    )
