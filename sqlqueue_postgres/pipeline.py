"""psycopg's pipeline as it serves us: everything goes out at once, and a pooler bears it."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.abc import PQGen

from sqlqueue_postgres.adapters import Driver


@contextmanager
def pipelined(driver: Driver) -> Iterator[None]:
    """A pipeline that sends all of its statements together with its Sync, and nothing after that.

    psycopg's own sends each statement and looks for answers as it is told of it: for a turn of four statements, six
    waits and as many system calls. And behind the Sync, which flushes by itself, it may send a Flush, for which a
    pooler in transaction mode, which has taken its server back by then, gives the idle connection one.

    Raises the error that aborted the pipeline. psycopg's own raises "pipeline aborted" in its place where the answers
    to what followed came in another packet (seen in one of seven tries through a pooler).
    """
    try:
        with _as_it_serves_us(driver):
            yield
    except psycopg.errors.PipelineAborted as aborted:
        raise reason(aborted) from None


def reason(aborted: psycopg.Error) -> psycopg.Error:
    """What aborted the pipeline, if that is known."""
    before: BaseException | None = aborted
    while isinstance(before, psycopg.errors.PipelineAborted):
        before = before.__context__
    return before if isinstance(before, psycopg.Error) else aborted


@contextmanager
def _as_it_serves_us(driver: Driver) -> Iterator[None]:
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
