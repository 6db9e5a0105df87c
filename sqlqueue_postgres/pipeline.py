"""psycopg's pipeline as a pooler bears it."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlqueue_postgres.adapters import Driver


@contextmanager
def pipelined(driver: Driver) -> Iterator[None]:
    """A pipeline that sends nothing after its Sync, which flushes by itself. psycopg may send a Flush, and a pooler
    in transaction mode, which has taken its server back by then, gives the idle connection one for that."""
    with driver.pipeline() as pipeline:
        fetch = pipeline._fetch_gen  # there is no public way
        pipeline._fetch_gen = lambda *, flush: fetch(flush=False)  # type: ignore[method-assign]
        yield
