"""Row lock: the claim locks the row in a transaction that stays open until the settlement commits it.

Row and outcome change together, and the row of a process that died is free as soon as the server ends its session. The
price is a connection, and an open transaction, for each delivery in work; and a crash cannot count as an attempt, for
the count is rolled back with everything else. So the settlement counts it.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import ClassVar

from sqlqueue.connection import AfterCommit, Session
from sqlqueue.dialect import Row
from sqlqueue.outcome import Move, Settlement
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import COMMIT, COMMIT_AND_CHAIN, Begin, Call, Statement, Step
from sqlqueue.statements import by_row_lock, unfinished
from sqlqueue.strategies.claim import NOBODY, Ahead, Claim, PassOver, Turned
from sqlqueue.strategies.dead_letter import DeadLetters
from sqlqueue.strategies.due import due_reader
from sqlqueue.strategies.fifo import Fifo
from sqlqueue.strategies.order import found_in_one_walk, unless_passed_over, waiting, waiting_rows
from sqlqueue.strategies.plan import Parameters, Reading, count
from sqlqueue.strategies.scan import InOrder, Look, Scan
from sqlqueue.strategies.settle import Settling, reclaim, turned_without_loss

# The rows are found and locked first, and then read: what the lock waited for may have changed them. Why two limits
# stands beside the lease's claim.
CLAIM = """
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        {waiting}
    ) AS _waiting
    LIMIT :limit
)
SELECT {returned} FROM {table}
JOIN _due ON {id} = _due.id
{skip_locked}
"""

# No attempt is counted whose worker was lost, so that spent attempts on an unfinished row mean a cleared error.
CLEARED = "{attempt} >= :cap"


# Where rows are claimed one at a time and found in one walk, that is all.
ONE = "{rows}"


def _take(sql: QueueSQL, width: int, returned: str, name: str, rows: str) -> Statement:
    lock = sql.dialect.skip_locked
    return sql.statement(name, CLAIM, width=width, waiting=rows, returned=returned, skip_locked=lock)


def _take_one(sql: QueueSQL, width: int, name: str, rows: str) -> Statement:
    return sql.statement(name, ONE, width=width, rows=rows)


class RowLock:
    """The row-lock strategy of one queue.

    `columns` are what the handler reads of a row, `most` the most rows that one claim takes, `cap` the attempts after
    which a row is spent (None: no cap), `by_key` whether claims pass keys over, `leaving` how
    rows become dead letters (None: they do not).
    """

    one_transaction: ClassVar[bool] = True
    by_session: ClassVar[bool] = True

    def __init__(
        self,
        sql: QueueSQL,
        *,
        columns: Sequence[ColumnSpec],
        most: int,
        cap: int | None = None,
        group: str | None = None,
        by_key: bool = False,
        leaving: DeadLetters | None = None,
    ) -> None:
        self._reading = Reading(sql, columns)
        self._group, self._cap = group, cap
        self._begin = Begin(sql.spec.isolation.upper()) if sql.spec.isolation else Begin()
        counted = count(sql, capped=cap is not None, cleared=CLEARED)
        free = [unless_passed_over(sql)] if by_key else []
        returned = self._reading.select(counted)
        take = partial(_take, sql, self._reading.width, returned)
        name = "claim by row lock"
        # A row that a row lock holds cannot be told from one that is free, but for the try to lock it.
        if sql.spec.line:
            self._scan: Scan = Fifo(sql, self._reading, take, name, most=most, free=free, own_shown=True)
        else:
            rows = partial(waiting, sql, most)
            if most == 1 and found_in_one_walk(sql):
                rows, take = partial(waiting_rows, sql, returned, 1), partial(_take_one, sql, self._reading.width)
            self._scan = InOrder(
                sql, self._reading, name=name, rows=rows, take=take, free=free, own_shown=True, by_key=by_key
            )
        self._settling = Settling(sql, by_row_lock(sql, singly=most == 1), cap=cap, leaving=leaving)
        self._binding = Parameters(sql, group=group, cap=cap)
        self._unfinished = unfinished(sql)
        lock = sql.dialect.skip_locked
        self._again = reclaim(sql, "lock again", counted=counted, skip_locked=lock)
        self._read_ahead = due_reader(sql)

    @property
    def claim(self) -> Statement:
        return self._scan.claim

    def statements(self) -> Sequence[Statement]:
        return [*self._scan.statements(), self._again, self._unfinished, *self._settling.statements()]

    def turn(
        self,
        connection: Session,
        settlements: Sequence[tuple[Claim, Settlement]],
        limit: int,
        now: datetime,
        pass_over: PassOver = NOBODY,
    ) -> Turned:
        """The rows to be settled are those that `connection` holds."""
        values = self._binding.values(now, pass_over)
        settling = self._settling.calls(settlements, values, now)
        for claim, settlement in settlements:
            if settlement.move is Move.RETRY:
                self._scan.again(claim)
        if settlements and not settling:
            connection.roll_back()  # they go back, which writes nothing
        look = self._scan.look(values, limit, now) if limit else None
        steps: list[Step] = [call for call, _ in settling]
        if settling:
            steps.append(COMMIT_AND_CHAIN if look else COMMIT)
        elif look:
            steps.append(self._begin)
        steps += look.calls if look else ()
        try:
            results = connection.send(steps) if steps else []
        except AfterCommit as after:
            connection.roll_back()
            return turned_without_loss((), settling, after.results, failed=after.__cause__)
        try:
            claims = self._found(connection, look, results[len(settling) :], now) if look else ()
        except Exception as error:  # noqa: BLE001 - sorted by who asked; what was settled is committed
            failed = error.__cause__ if isinstance(error, AfterCommit) and error.__cause__ else error
            return turned_without_loss((), settling, results, failed=failed)
        return turned_without_loss(claims, settling, results)

    def _found(
        self, connection: Session, look: Look, results: Sequence[Sequence[Row]], now: datetime
    ) -> Sequence[Claim]:
        """The claims of the look and of those further on."""
        rows = list(results[-1])
        further = self._scan.further(look, results)
        while further is not None:
            look = further
            found = connection.send(self._on(rows, look.calls))
            own = {row[self._reading.id_at] for row in rows}  # locked by ourselves, which passes nothing over
            rows += [row for row in found[-1] if row[self._reading.id_at] not in own]
            further = self._scan.further(look, found)
        if not rows:
            self._end(connection)
        return self._reading.claims(self._scan.claimed(rows, look, now))

    @staticmethod
    def _on(rows: Sequence[Row], calls: Sequence[Call]) -> Sequence[Step]:
        """To look on: in the transaction that holds rows already, else in a new one, without what this one guards."""
        return calls if rows else [COMMIT_AND_CHAIN, *calls]

    @staticmethod
    def _end(connection: Session) -> None:
        """End a transaction that locked nothing. A driver may forget its prepared statements at a rollback; psycopg
        does."""
        connection.send([COMMIT])

    def hold_again(self, connection: Session, claim: Claim) -> bool:
        connection.roll_back()
        values = {"id": claim.id, "group": self._group, "cap": self._cap, "attempt": claim.attempt}
        (rows,) = connection.send([self._begin, Call(self._again, values)])
        if not rows:
            self._end(connection)
        return bool(rows)

    def take_over(self, connection: Session, claim: Claim) -> bool:
        return self.hold_again(connection, claim)

    def let_go(self, connection: Session, claim: Claim) -> None:
        connection.roll_back()

    def look_ahead(self, connection: Session, now: datetime, pass_over: PassOver = NOBODY, held: int = 0) -> Ahead:
        (rows,) = connection.run([Call(self._scan.ahead, {**self._binding.values(now, pass_over), "held": held})])
        return self._read_ahead(rows)

    def unfinished(self, connection: Session, id: object) -> bool:
        return bool(connection.run([Call(self._unfinished, {"id": id, "group": self._group})])[0])
