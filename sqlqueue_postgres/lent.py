"""Connections that the user's pool lends."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import attrs
import psycopg

from sqlqueue.connection import ENDED, IN_USE, TakenBack
from sqlqueue.dialect import Row
from sqlqueue.errors import TransactionError
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Begin, Call, Commit, Rollback, Statement, Step
from sqlqueue_postgres.adapters import Driver, execute
from sqlqueue_postgres.connection import (
    BEGIN,
    COMMIT,
    LIMIT_TIME,
    NEED_NOT_BE_DURABLE,
    NO_LIMIT,
    Words,
    copy,
    in_milliseconds,
    roll_back,
    sent,
    together,
)
from sqlqueue_postgres.handed import PUT_BACK, ended, problem_of, say_opening
from sqlqueue_postgres.patience import GRACE, Limited
from sqlqueue_postgres.sessions import explain

#: What a program can set on a psycopg connection: at any time, and outside of a transaction only.
ANY_TIME = ("row_factory", "cursor_factory", "server_cursor_factory", "prepare_threshold", "prepared_max")
WHEN_IDLE = ("autocommit", "isolation_level", "read_only", "deferrable")


@attrs.define
class LentConnection:
    """A connection of the user's pool, in autocommit mode while it is lent: our transactions name all they need."""

    driver: Driver
    _seconds: float = attrs.field(alias="statement_timeout")
    _attributes: Mapping[str, Any] = attrs.field(factory=dict)
    _standing: Row | None = None  # what a handler may have changed

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        before: list[Words] = [(BEGIN, ()), (LIMIT_TIME, (in_milliseconds(self._seconds),))]
        if not durable and any(call.statement.writes for call in calls):
            before.append((NEED_NOT_BE_DURABLE, ()))
        try:
            with Limited(self.driver, self._seconds + GRACE):
                return together(self.driver, before, calls, [(COMMIT, ())], nullcontext)
        except psycopg.Error as error:
            explain(error)
            raise
        finally:
            roll_back(self.driver)

    def send(self, steps: Sequence[Step]) -> list[list[Row]]:
        limit = (LIMIT_TIME, (in_milliseconds(self._seconds),))
        with Limited(self.driver, self._seconds + GRACE):
            try:
                results = sent(self.driver, steps, (limit,), ((BEGIN, ()), limit), self._put_back)
            except psycopg.Error as error:
                if ended(error, steps):
                    raise TransactionError(ENDED) from None
                raise
        if any(isinstance(step, Commit | Rollback) for step in steps):
            self._standing = None  # put back behind the handler's part, for good
        return results

    @property
    def _put_back(self) -> Sequence[Words]:
        return () if self._standing is None else ((PUT_BACK, self._standing),)

    def roll_back(self) -> None:
        roll_back(self.driver, self._put_back)
        self._standing = None
        self._set_back(WHEN_IDLE)

    def leave(self) -> None:
        """Whoever had it is done: it is as it came."""
        if self._standing is not None:
            self.roll_back()

    def lend(self, begin: Begin | None) -> Any:
        """The user's own connection: of the class that their pool makes, with what they set up."""
        with Limited(self.driver, self._seconds + GRACE):
            self._standing = say_opening(self.driver, begin)
        self._attributes = {name: getattr(self.driver, name) for name in (*ANY_TIME, *WHEN_IDLE)}
        return self.driver

    def _set_back(self, names: Iterable[str]) -> None:
        for name in names if not self.driver.closed else ():
            if name in self._attributes and getattr(self.driver, name) != self._attributes[name]:
                setattr(self.driver, name, self._attributes[name])

    def take_back(self) -> TakenBack:
        free = self.driver.lock.acquire(blocking=False)
        if not free:
            self.driver.close()
            return TakenBack(IN_USE, last=True)
        self.driver.lock.release()
        self._set_back(ANY_TIME)
        problem = problem_of(self.driver)
        if problem == ENDED:
            self._set_back(WHEN_IDLE)  # a transaction of ours would begin as the handler chose
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
        try:
            execute(self.driver, BEGIN)
            execute(self.driver, LIMIT_TIME, (NO_LIMIT,))
            count = copy(self.driver, table, columns, rows, then)
            execute(self.driver, COMMIT)
        finally:
            roll_back(self.driver)
        return count
