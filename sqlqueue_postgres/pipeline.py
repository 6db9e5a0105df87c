"""psycopg's pipeline as it serves us: everything goes out at once, and a pooler bears it."""

from collections.abc import Iterator
from contextlib import contextmanager

from psycopg.abc import PQGen

from sqlqueue_postgres.adapters import Driver


@contextmanager
def pipelined(driver: Driver) -> Iterator[None]:
    """A pipeline that sends all of its statements together with its Sync, and nothing after that.

    psycopg's own sends each statement and looks for answers as it is told of it: for a turn of four statements, six
    waits and as many system calls. And behind the Sync, which flushes by itself, it may send a Flush, for which a
    pooler in transaction mode, which has taken its server back by then, gives the idle connection one.
    """
    with driver.pipeline() as pipeline:
        fetch = pipeline._fetch_gen  # there is no public way
        pipeline._fetch_gen = lambda *, flush: fetch(flush=False)  # type: ignore[method-assign]
        pipeline._communicate_gen = _later  # type: ignore[method-assign]
        try:
            yield
        finally:
            del pipeline._communicate_gen  # what is left is the class's own


def _later() -> PQGen[None]:
    return
    yield
