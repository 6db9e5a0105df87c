"""How a connection leaves a psycopg pool and comes back: alive, and without a transaction."""

import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from sqlqueue_postgres.adapters import Driver
from sqlqueue_postgres.connection import roll_back


@contextmanager
def borrowed(pool: ConnectionPool[Driver], timeout: float | None, probe: Callable[[], None]) -> Iterator[Driver]:
    """A live connection, without a transaction when it goes back."""
    driver = take(pool, pool.timeout if timeout is None else timeout, probe)
    try:
        yield driver
    finally:
        roll_back(driver)
        pool.putconn(driver)


def take(pool: ConnectionPool[Driver], timeout: float, probe: Callable[[], None]) -> Driver:
    """The first connection whose server has not hung up: after a restart a pool is full of those that have.

    `probe` raises where the server is not there; the pool would wait for it, and then say that it has nothing to lend.
    """
    until = monotonic() + timeout
    while True:
        try:
            driver = pool.getconn(max(until - monotonic(), 0.001))
        except PoolTimeout:
            probe()
            raise
        if not hung_up(driver):
            return driver
        driver.close()
        pool.putconn(driver)
        probe()


def hung_up(driver: Driver) -> bool:
    """Whether the server's goodbye is waiting to be read; a look at the socket and no round trip."""
    try:
        # The farewell is read first, the end of the stream behind it by the second look.
        for _ in range(3):
            if driver.closed or not _readable(driver.fileno()):
                return driver.closed
            driver.pgconn.consume_input()
    except psycopg.OperationalError:
        return True
    return False


def _readable(fileno: int) -> bool:
    if not hasattr(select, "poll"):  # Windows
        return bool(select.select([fileno], [], [], 0)[0])
    poll = select.poll()
    poll.register(fileno, select.POLLIN)
    return bool(poll.poll(0))


@contextmanager
def in_autocommit(driver: Driver) -> Iterator[None]:
    """In autocommit mode for the while; the user's own mode afterwards."""
    before = driver.autocommit
    if not before:
        driver.autocommit = True
    try:
        yield
    finally:
        if not before:
            roll_back(driver)
            if not driver.closed:
                driver.autocommit = False
