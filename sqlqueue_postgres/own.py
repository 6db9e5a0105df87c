"""Connections of our own pool."""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import psycopg
from psycopg.pq import TransactionStatus

from sqlqueue.connection import ENDED, AfterCommit, TakenBack
from sqlqueue.dialect import Row
from sqlqueue.errors import TransactionError
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import ROLLBACK, Begin, Call, Commit, Rollback, Savepoint, Statement, Step
from sqlqueue_postgres.adapters import Driver, execute
from sqlqueue_postgres.connection import LIMIT_TIME, NEED_NOT_BE_DURABLE, NO_LIMIT, copy, words_of
from sqlqueue_postgres.fuse import MISFITS, Fused, fuse
from sqlqueue_postgres.handed import PUT_BACK, Came, Handed, ended, opening
from sqlqueue_postgres.trouble import is_stale_plan
from sqlqueue_postgres.wire import Said, Wire


@attrs.define
class OwnConnection:
    """A connection of our own pool: in autocommit mode, with our settings, so that one statement needs no prelude."""

    driver: Driver
    _wire: Wire
    _came: Came
    _handed: Handed | None = None
    _changed: bool = False  # by a handler, as far as we know

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        if not calls:
            return []
        durable = durable or not any(call.statement.writes for call in calls)
        fused = fuse(tuple([call.statement for call in calls]), durable) if len(calls) > 1 or not durable else None
        if fused is not None and fused.serves:
            results = self._run_fused(fused, calls)
            if results is not None:
                return results
        before = [] if durable else [(NEED_NOT_BE_DURABLE.encode(), ())]
        rows, error = self._say([*before, *[_said(call) for call in calls]])
        if error is not None:
            raise error
        return [found or [] for found in rows[len(before) :]]

    def _run_fused(self, fused: Fused, calls: Sequence[Call]) -> list[list[Row]] | None:
        (rows,), error = self._say([(fused.text, fused.bind(calls))])
        if error is None:
            return fused.split(rows or [], len(calls))
        if error.sqlstate not in MISFITS or self.driver.closed:
            raise error
        # Nothing has run. Where a call is wrong by itself, it says so when it runs on its own.
        fused.serves = False
        return None

    def send(self, steps: Sequence[Step]) -> list[list[Row]]:
        said: list[Said] = []
        places: list[int] = []
        for step in steps:
            places.append(len(said))
            said += self._said_step(step)
        rows, error = self._say(said)
        results = [rows[at] or [] for step, at in zip(steps, places, strict=True) if isinstance(step, Call)]
        done = [step for step, at in zip(steps, places, strict=True) if rows[at] is not None]
        committed = any(isinstance(step, Commit) for step in done)
        if committed or (error is None and ROLLBACK in done):
            self._changed = False  # what a handler changed was put back behind its part, for good
        if error is None:
            return results
        if committed:
            raise AfterCommit(results) from error
        if ended(error, steps):
            raise TransactionError(ENDED) from None
        raise error

    def _said_step(self, step: Step) -> Sequence[Said]:
        if isinstance(step, Call):
            return [_said(step)]
        said = (words_of(step).encode(), ())
        return [said, self._put_back] if isinstance(step, Savepoint | Rollback) else [said]

    @property
    def _put_back(self) -> Said:
        return PUT_BACK.encode(), self._came.standing

    def _say(self, said: Sequence[Said]) -> tuple[list[list[Row] | None], psycopg.Error | None]:
        rows, error = self._wire.say(said)
        if error is not None and is_stale_plan(error):
            self.driver.close()  # and with it its prepared statements
        return rows, error

    def roll_back(self) -> None:
        if self.driver.closed:
            return
        idle = self.driver.pgconn.transaction_status == TransactionStatus.IDLE
        said = [] if idle else [(words_of(ROLLBACK).encode(), ())]
        if self._changed:
            said.append(self._put_back)
        _, error = self._say(said) if said else ((), None)
        if error is not None and self._changed:
            self.driver.close()  # nobody knows which tables it would find
        self._changed = False

    def lend(self, begin: Begin | None) -> Any:
        _, error = self._say(opening(begin, self._came))
        if error is not None:
            raise error
        self._handed, self._changed = Handed(self.driver), True
        return self._handed.connection

    def leave(self) -> None:
        """Whoever had it is done: it is as it came."""
        if self._changed:
            try:
                self.roll_back()
            except psycopg.Error:
                self.driver.close()

    def take_back(self) -> TakenBack:
        assert self._handed is not None, "nothing was lent"
        handed, self._handed = self._handed, None
        problem = handed.take_back()
        return TakenBack(problem, last=problem is not None)

    def close(self) -> None:
        self.driver.close()

    @property
    def closed(self) -> bool:
        return self.driver.closed

    def insert_many(
        self,
        insert: Statement,
        table: TableSpec,
        columns: Sequence[ColumnSpec],
        rows: Iterable[Row],
        *,
        then: Sequence[Call] = (),
    ) -> int:
        with self.driver.transaction():
            execute(self.driver, LIMIT_TIME, (NO_LIMIT,))  # it takes as long as the rows take to come
            return copy(self.driver, table, columns, rows, then)


def _said(call: Call) -> Said:
    return call.statement.sql, call.statement.bind(call.values)
