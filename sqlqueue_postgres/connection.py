"""Connections that a pool lends, our own or the user's, and the one path that their statements take to the server.

A psycopg cursor costs 40 to 50 µs a statement, most of it for what is the same each time: adapters looked up, the query
parsed, the answer waited for by itself. Here the statements of a round trip share one Sync of libpq's pipeline,
and their results are read in one wait: a third of that for a turn of four. psycopg's own types turn values into what
is sent and back.
"""

import select
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from time import monotonic
from typing import Any, ClassVar

import attrs
import psycopg
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result
from psycopg.pq import ConnStatus, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult

from sqlqueue.connection import ENDED, AfterCommit, TakenBack
from sqlqueue.dialect import Row
from sqlqueue.errors import TransactionError
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import COMMIT, COMMIT_AND_CHAIN, ROLLBACK, Begin, Call, Commit, Rollback, Savepoint, Statement, Step
from sqlqueue_postgres.adopted import Cursor, copy, execute
from sqlqueue_postgres.fuse import MISFITS, fuse
from sqlqueue_postgres.loan import PUT_BACK, Command, Driver, Loan
from sqlqueue_postgres.trouble import is_stale_plan

#: What is sent for a step that is no call.
TEXTS: Mapping[Step, bytes] = {
    Begin("READ COMMITTED"): b"BEGIN ISOLATION LEVEL READ COMMITTED",
    Begin("REPEATABLE READ"): b"BEGIN ISOLATION LEVEL REPEATABLE READ",
    Begin("SERIALIZABLE"): b"BEGIN ISOLATION LEVEL SERIALIZABLE",
    COMMIT: b"COMMIT",
    COMMIT_AND_CHAIN: b"COMMIT AND CHAIN",
    ROLLBACK: b"ROLLBACK",
    **{savepoint: savepoint.value.encode() for savepoint in Savepoint},
}

BEGIN_COMMAND: Command = (TEXTS[Begin()], ())
COMMIT_COMMAND: Command = (TEXTS[COMMIT], ())

# Both for the transaction only, so that nothing is left behind on a connection that is lent.
LIMIT_TIME = b"SELECT set_config('statement_timeout', $1, true)"
NEED_NOT_BE_DURABLE: Command = (b"SELECT set_config('synchronous_commit', 'off', true)", ())

#: Seconds beside the statement's own time, for the way there and back.
GRACE = 5.0

#: "No such savepoint", and "no transaction".
NOT_THERE = ("3B001", "25P01")

_NUMBERS = count(1)


class NoAnswer(psycopg.OperationalError):
    """Nothing came in time."""


def ready(fileno: int, seconds: float, *, writing: bool = False) -> bool:
    """Wait until there is something to read, or room to write, for so many seconds; whether there is."""
    seconds = max(seconds, 0.0)
    if not hasattr(select, "poll"):  # Windows
        return any(select.select([fileno], [fileno] if writing else [], [], seconds))
    poll = select.poll()
    poll.register(fileno, select.POLLIN | select.POLLOUT if writing else select.POLLIN)
    return bool(poll.poll(seconds * 1000))


class Transport:
    """Sends statements on one connection, many in one round trip. Not for two threads at once.

    A wait ends after so many seconds, with the connection: a peer that fell silent, but still takes what is sent, is
    noticed by nothing else. `named`: a statement is prepared once, by a name of ours, and its plan kept. Without it
    nothing is left behind in the session, which a pooler may hand on between transactions.
    """

    #: libpq 13 has no pipelines: each statement is a round trip there.
    pipelines: ClassVar[bool] = psycopg.Pipeline.is_supported()

    def __init__(self, driver: Driver, seconds: float, *, named: bool) -> None:
        self._driver, self._seconds = driver, seconds
        self._names: dict[tuple[bytes, tuple[int, ...]], bytes] | None = {} if named else None
        self._types = Transformer(Cursor(driver))

    def exchange(self, commands: Sequence[Command]) -> tuple[list[list[Row] | None], psycopg.Error | None]:
        """Run the statements: the rows of each, None from the first on that failed, and its error.

        Raises the driver's error where the connection is lost.
        """
        driver, types = self._driver, self._types
        if driver.closed:
            raise psycopg.OperationalError("the connection is closed")
        bound = []
        for text, values in commands:  # before anything is sent: a value that cannot be is the caller's error
            params = types.dump_sequence(values, [PyFormat.AUTO] * len(values)) if values else None
            bound.append((text, tuple(types.types or ()) if values else (), params, types.formats if values else None))
        done = False
        with driver.lock:
            try:
                sent, results = (self._pipelined if self.pipelines else self._one_by_one)(driver.pgconn, bound)
                done = True
            finally:
                if not done:  # what comes next is the answer to something else
                    driver.close()
        rows: list[list[Row] | None] = []
        error: psycopg.Error | None = None
        for prepared, result in zip(sent, results, strict=False):
            if error is None and result.status == ExecStatus.FATAL_ERROR:
                error = error_from_result(result, encoding=driver.info.encoding)
            if prepared is not None and self._names is not None:
                if error is None:
                    self._names[prepared[:2]] = prepared[2]
            elif error is not None:
                rows.append(None)
            elif result.status != ExecStatus.TUPLES_OK or not result.ntuples:
                rows.append([])
            else:
                types.set_pgresult(result)
                rows.append(types.load_rows(0, result.ntuples, tuple))
        if error is not None and is_stale_plan(error):
            driver.close()  # and with it its prepared statements
        rows += [None] * (len(commands) - len(rows))
        return rows, error

    def _pipelined(self, pgconn: PGconn, bound: Sequence[Any]) -> tuple[Sequence[Any], list[PGresult]]:
        """Send all with one Sync. For each result the name that was prepared, or None: a statement was executed."""
        sent: list[tuple[bytes, tuple[int, ...], bytes] | None] = []
        pgconn.enter_pipeline_mode()
        for text, types, params, formats in bound:
            if self._names is None:
                pgconn.send_query_params(text, params, types, formats, Format.BINARY)
            else:
                name = self._names.get((text, types))
                if name is None:
                    name = b"sqlqueue_%d" % next(_NUMBERS)
                    pgconn.send_prepare(name, text, types)
                    sent.append((text, types, name))
                pgconn.send_query_prepared(name, params, formats, Format.BINARY)
            sent.append(None)
        pgconn.pipeline_sync()  # nothing is sent behind it: a Flush there would have a pooler give us a server again
        results = self._results(pgconn)
        pgconn.exit_pipeline_mode()
        return sent, results

    def _one_by_one(self, pgconn: PGconn, bound: Sequence[Any]) -> tuple[Sequence[Any], list[PGresult]]:
        results: list[PGresult] = []
        for text, types, params, formats in bound:
            pgconn.send_query_params(text, params, types, formats, Format.BINARY)
            results += self._results(pgconn)
            if results[-1].status == ExecStatus.FATAL_ERROR:
                break
        return [None] * len(bound), results

    def _results(self, pgconn: PGconn) -> list[PGresult]:
        """The results up to the Sync; without a pipeline those of the one statement."""
        until = monotonic() + self._seconds
        results: list[PGresult] = []
        sending = True
        while True:
            while (sending := sending and pgconn.flush() != 0) or pgconn.is_busy():
                if not ready(pgconn.socket, until - monotonic(), writing=sending):
                    raise NoAnswer(f"the server did not answer within {self._seconds:g} s")
                try:
                    pgconn.consume_input()
                except psycopg.OperationalError as lost:
                    failed = [result for result in results if result.status == ExecStatus.FATAL_ERROR]
                    if failed:  # the server's reason
                        raise error_from_result(failed[0], encoding=self._driver.info.encoding) from lost
                    raise
            result = pgconn.get_result()
            if result is None:  # there is one behind each statement
                if not self.pipelines:
                    return results
                if pgconn.status != ConnStatus.OK:
                    raise psycopg.OperationalError(f"the connection is lost: {pgconn.get_error_message()}")
            elif result.status == ExecStatus.PIPELINE_SYNC:
                return results
            else:
                results.append(result)


@attrs.define(eq=False)
class PooledConnection:
    """A connection of our own pool or of the user's, in autocommit mode while it is lent.

    `limit` is what each transaction of ours sets for itself. Our own sessions are set up for us, and need nothing.
    """

    driver: Driver
    _transport: Transport
    _loan: Loan
    _limit: Sequence[Command] = ()
    _standing: Row | None = attrs.field(default=None, init=False)  # what a handler may have changed

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> list[list[Row]]:
        if not calls:
            return []
        relaxed = not durable and bool([call for call in calls if call.statement.writes])
        fused = None
        if relaxed or len(calls) > 1:
            fused = fuse(tuple([call.statement for call in calls]), not relaxed)
        if fused is not None and fused.serves:
            values = [call.values[name] for call in calls for name in call.statement.parameters]
            commands: list[Command] = [(fused.text, values)]
        else:
            fused = None
            commands = [NEED_NOT_BE_DURABLE] if relaxed else []
            for call in calls:
                commands.append((call.statement.sql, [call.values[name] for name in call.statement.parameters]))
        in_transaction = bool(self._limit) or not self._transport.pipelines  # else a pipeline is one by itself
        if in_transaction:
            commands = [BEGIN_COMMAND, *self._limit, *commands, COMMIT_COMMAND]
        rows, error = self._transport.exchange(commands)
        if error is not None:
            if in_transaction:
                self.roll_back()
            if fused is None or error.sqlstate not in MISFITS or self.driver.closed:
                raise error
            # Nothing has run. Where a call is wrong by itself, it says so when it runs on its own.
            fused.serves = False
            return self.run(calls, durable=durable)
        if in_transaction:
            rows.pop()
        if fused is None:
            return [found or [] for found in rows[-len(calls) :]]
        results: list[list[Row]] = [[] for _ in calls]
        for row in rows[-1] or ():
            if row[0] >= 0:
                results[row[0]].append(row[fused.slices[row[0]]])
        return results

    def send(self, steps: Sequence[Step]) -> list[list[Row]]:
        commands, calls, commits = self._commands(steps)
        rows, error = self._transport.exchange(commands)
        results = [rows[place] or [] for place in calls]
        committed = bool(commits) and rows[commits[0]] is not None
        if committed or (error is None and ROLLBACK in steps):
            self._standing = None  # what a handler changed was put back behind its part, for good
        if error is None:
            return results
        if committed:
            raise AfterCommit(results) from error
        if error.sqlstate in NOT_THERE and any(isinstance(step, Savepoint) for step in steps):
            raise TransactionError(ENDED) from None  # the handler's part of the transaction is not there any more
        raise error

    def _commands(self, steps: Sequence[Step]) -> tuple[list[Command], list[int], list[int]]:
        """What is sent for the steps; where among it the calls stand, and the commits.

        Calls outside of a transaction share one of ours where they need a limit, or there are no pipelines.
        """
        commands: list[Command] = []
        calls: list[int] = []
        commits: list[int] = []
        alone = bool(self._limit) or not self._transport.pipelines
        held = self.driver.pgconn.transaction_status != TransactionStatus.IDLE
        framed = False
        for step in steps:
            if isinstance(step, Call):
                if alone and not held and not framed:
                    commands += [BEGIN_COMMAND, *self._limit]
                    framed = True
                calls.append(len(commands))
                commands.append((step.statement.sql, [step.values[name] for name in step.statement.parameters]))
                continue
            if framed:
                commands.append(COMMIT_COMMAND)
                framed = False
            if isinstance(step, Commit):
                commits.append(len(commands))
            commands.append((TEXTS[step], ()))
            if isinstance(step, Savepoint | Rollback):
                commands += () if self._standing is None else ((PUT_BACK, self._standing),)
                held = held and not isinstance(step, Rollback)
            else:
                held = isinstance(step, Begin) or step.chain
                commands += self._limit if held else ()
        if framed:
            commands.append(COMMIT_COMMAND)
        return commands, calls, commits

    def roll_back(self) -> None:
        """End what is open, and put back what a handler may have changed; one that cannot is closed."""
        if self.driver.closed:
            return
        idle = self.driver.pgconn.transaction_status == TransactionStatus.IDLE
        commands: list[Command] = [] if idle else [(TEXTS[ROLLBACK], ())]
        if self._standing is not None:
            commands.append((PUT_BACK, self._standing))
            self._standing = None
        if commands:
            try:
                _, error = self._transport.exchange(commands)
            except psycopg.Error as lost:
                error = lost
            if error is not None:
                self.driver.close()  # nobody knows which tables it would find
            self._loan.set_back()

    def lend(self, begin: Begin | None) -> Any:
        """The driver's connection for a handler, in a transaction that knows no limit of ours."""
        opening: list[Command] = [(TEXTS[begin], ())] if begin else []
        rows = self._exchange([*opening, *self._loan.opening, (TEXTS[Savepoint.SET], ())])
        self._standing = (rows[-2] or [])[0][-2:]
        return self._loan.lend()

    def take_back(self) -> TakenBack:
        return self._loan.take_back()

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
            self._exchange([BEGIN_COMMAND, (LIMIT_TIME, ("0",))])  # it takes as long as the rows take to come
            count = copy(self.driver, table, columns, rows)
            for call in then if count else ():
                execute(self.driver, call.statement.text, call.statement.bind(call.values))
            self._exchange([COMMIT_COMMAND])
        finally:
            self.roll_back()
        return count

    def _exchange(self, commands: Sequence[Command]) -> list[list[Row] | None]:
        rows, error = self._transport.exchange(commands)
        if error is not None:
            raise error
        return rows
