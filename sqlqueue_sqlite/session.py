"""A connection whose transaction lasts from one use to the next: what a transactional delivery holds.

While it is open it has SQLite's one write lock, so nobody else writes, here or in another process.
"""

import gc
import sqlite3
import sys
import threading
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any

from sqlqueue.connection import CLOSED, ENDED, IN_USE, AfterCommit, TakenBack
from sqlqueue.dialect import Row
from sqlqueue.errors import TransactionError
from sqlqueue.sql import Begin, Call, Commit, Rollback, Savepoint, Step
from sqlqueue_sqlite.connection import PooledConnection
from sqlqueue_sqlite.forks import fork_gate
from sqlqueue_sqlite.patience import Patience
from sqlqueue_sqlite.prepared import execute

NO_SAVEPOINT = "no such savepoint: sqlqueue_handler"


class SessionConnection(PooledConnection):
    """A pool's connection that can be lent to a handler. `Begin` takes the write lock."""

    _referred = 0
    _inside = False  # the gate
    _kept = False

    def send(self, steps: Sequence[Step]) -> list[list[Row]]:
        results: list[list[Row]] = []
        committed = False
        try:
            for step in steps:
                if isinstance(step, Call):
                    results.append(self._call(step))
                elif isinstance(step, Begin):
                    self._begin()
                elif isinstance(step, Commit):
                    self._end("COMMIT")
                    committed = True
                    if step.chain:
                        self._begin()
                elif isinstance(step, Rollback):
                    self._end("ROLLBACK")
                else:
                    self._say(step.value)
        except sqlite3.Error as error:
            if committed:
                calls = sum(isinstance(step, Call) for step in steps)
                raise AfterCommit([*results, *([] for _ in range(calls - len(results)))]) from error
            if str(error) == NO_SAVEPOINT:
                raise TransactionError(ENDED) from None
            raise
        return results

    def roll_back(self) -> None:
        self._roll_back()
        if not self.spoiled:
            self._set_back_when_idle()
        self._leave_gate()

    def lend(self, begin: Begin | None) -> Any:
        if begin is not None:
            self._begin()
        self._say(Savepoint.SET.value)
        self._gate.lend()
        self._referred = sys.getrefcount(self.driver)
        return self.driver

    def take_back(self) -> TakenBack:
        """SQLite cannot cut a connection off. One that something of the handler's keeps is closed when it goes back, so
        that later use raises."""
        self._gate.take_back()
        try:
            inside = self.driver.in_transaction
        except sqlite3.ProgrammingError:
            self.spoiled = True
            return TakenBack(CLOSED, last=True)
        self._set_back()
        self._kept = self._is_kept()
        if self._kept and in_use_elsewhere(self.driver):
            return TakenBack(IN_USE, last=True)
        return TakenBack(None if inside else ENDED, last=self._kept or not inside)

    def _is_kept(self) -> bool:
        """Whether more refers to the connection than before; cursors in a cycle wait for the collector."""
        if sys.getrefcount(self.driver) <= self._referred:
            return False
        gc.collect()
        return sys.getrefcount(self.driver) > self._referred

    def restore(self) -> bool:
        fit = super().restore()
        self._leave_gate()
        return fit and not self._kept

    def _begin(self) -> None:
        patience = Patience(self._seconds)
        self._inside = self._gate.enter(self._seconds)
        done = False
        try:
            self._set_durable(True)
            self._try(partial(self._cursor.execute, "BEGIN IMMEDIATE"), patience)
            done = True
        finally:
            if not done:
                self._leave_gate()

    def _call(self, call: Call) -> list[Row]:
        if not self.driver.in_transaction:
            return self.run([call])[0]
        with fork_gate:
            return execute(self._cursor, call)

    def _say(self, text: str) -> None:
        with fork_gate:
            self._cursor.execute(text)

    def _end(self, text: str) -> None:
        self._say(text)
        self._set_back_when_idle()
        self._leave_gate()

    def _leave_gate(self) -> None:
        if self._inside:
            self._inside = False
            self._gate.leave()


def in_use_elsewhere(driver: sqlite3.Connection) -> bool:
    """Whether a function that another thread is in holds the connection, or a cursor of it, in a variable of its own or
    of an object in one. What is merely kept, such as by an error in a log, is not used."""
    mine = threading.get_ident()
    for thread, frame in sys._current_frames().items():
        function: FrameType | None = None if thread == mine else frame
        while function is not None:
            if any(_holds(value, driver) for value in tuple(function.f_locals.values())):
                return True
            function = function.f_back
    return False


def _holds(value: object, driver: sqlite3.Connection) -> bool:
    try:
        inside = (value, *tuple(getattr(value, "__dict__", {}).values()))
    except Exception:  # noqa: BLE001 - another thread's variable, such as a proxy, may raise anything
        return False
    return any(one is driver or (isinstance(one, sqlite3.Cursor) and one.connection is driver) for one in inside)
