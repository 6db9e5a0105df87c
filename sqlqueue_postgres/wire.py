"""Statements over libpq's pipeline without a cursor for each: what our own connections speak.

A psycopg cursor costs 40 to 50 µs a statement, most of it for what is the same each time: adapters looked up, the query
parsed, the answer waited for by itself. Here the statements of a round trip are prepared once by a name of ours, go out
together behind one Sync, and are read in one wait: a third of that for a turn of four. psycopg's own types turn values
into what is sent and back. A wait ends after so many seconds, with the connection: a peer that fell silent, but still
takes what is sent, is told by nothing else.
"""

import select
from collections.abc import Sequence
from itertools import count
from time import monotonic
from typing import Any

import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format
from psycopg.pq.abc import PGconn, PGresult

from sqlqueue_postgres.adapters import ADAPTERS, Driver, Row

#: A statement and the values of its placeholders.
Said = tuple[bytes, Row]

_NUMBERS = count(1)


class Wire:
    """One connection's statements. Not for two threads at once, nor for a connection in somebody's pipeline."""

    __slots__ = ("_driver", "_names", "_seconds", "_types")

    def __init__(self, driver: Driver, seconds: float) -> None:
        self._driver, self._seconds = driver, seconds
        self._names: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._types = Transformer.from_context(_Context(driver))

    def say(self, said: Sequence[Said]) -> tuple[list[list[Row] | None], psycopg.Error | None]:
        """Run the statements in one round trip: the rows of each, None from the first on that failed, and its error.

        Raises the driver's error where the connection is lost.
        """
        driver, pgconn = self._driver, self._driver.pgconn
        if driver.closed:
            raise psycopg.OperationalError("the connection is closed")
        done = False
        with driver.lock:
            pgconn.enter_pipeline_mode()
            try:
                prepared = [self._send(pgconn, text, values) for text, values in said]
                pgconn.pipeline_sync()
                answers = self._answers(pgconn, len(said) + sum(name is not None for name in prepared))
                pgconn.exit_pipeline_mode()
                done = True
            finally:
                if not done:  # what it would say next is the answer to something else
                    driver.close()
        return self._read(said, prepared, answers)

    def _send(self, pgconn: PGconn, text: bytes, values: Row) -> tuple[tuple[int, ...], bytes] | None:
        """Queue a statement; the types and the name that it is prepared by, where that is new."""
        types: tuple[int, ...] = ()
        params: Sequence[Any] | None = None
        formats: Sequence[Format] | None = None
        if values:
            params = self._types.dump_sequence(values, [PyFormat.AUTO] * len(values))
            types, formats = tuple(self._types.types or ()), self._types.formats
        name, new = self._names.get((text, types)), None
        if name is None:
            name = b"sqlqueue_%d" % next(_NUMBERS)
            pgconn.send_prepare(name, text, types)
            new = (types, name)
        pgconn.send_query_prepared(name, params, formats, result_format=Format.BINARY)
        return new

    def _answers(self, pgconn: PGconn, count: int) -> list[PGresult]:
        """What the server answers to so many commands, up to the Sync behind them."""
        until = monotonic() + self._seconds
        while pgconn.flush():
            self._await(pgconn, until, select.POLLIN | select.POLLOUT)
            pgconn.consume_input()
        answers: list[PGresult] = []
        while len(answers) <= count:
            while pgconn.is_busy():
                self._await(pgconn, until, select.POLLIN)
                pgconn.consume_input()
            answer = pgconn.get_result()
            if answer is not None:  # there is a None behind those of each command
                answers.append(answer)
        return answers

    def _await(self, pgconn: PGconn, until: float, events: int) -> None:
        poll = select.poll()
        poll.register(pgconn.socket, events)
        if not poll.poll(max(0.0, until - monotonic()) * 1000):
            raise psycopg.OperationalError(f"the server did not answer within {self._seconds:g} s")

    def _read(
        self, said: Sequence[Said], prepared: Sequence[tuple[tuple[int, ...], bytes] | None], answers: list[PGresult]
    ) -> tuple[list[list[Row] | None], psycopg.Error | None]:
        rows: list[list[Row] | None] = []
        error: psycopg.Error | None = None
        following = iter(answers)
        for (text, _), new in zip(said, prepared, strict=True):
            if new is not None:
                error = error or _error(next(following), self._driver)
                if error is None:
                    self._names[text, new[0]] = new[1]
            answer = next(following)
            error = error or _error(answer, self._driver)
            rows.append(self._rows(answer) if error is None else None)
        return rows, error

    def _rows(self, answer: PGresult) -> list[Row]:
        if answer.status != ExecStatus.TUPLES_OK or not answer.ntuples:
            return []
        self._types.set_pgresult(answer)
        return self._types.load_rows(0, answer.ntuples, tuple)


class _Context:
    """What psycopg adapts values by: our adapters, and the connection's encoding."""

    adapters = ADAPTERS

    def __init__(self, driver: Driver) -> None:
        self.connection = driver


def _error(answer: PGresult, driver: Driver) -> psycopg.Error | None:
    if answer.status == ExecStatus.FATAL_ERROR:
        return error_from_result(answer, encoding=driver.info.encoding)
    return None
