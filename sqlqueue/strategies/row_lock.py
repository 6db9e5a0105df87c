"""Row lock: the claim locks the row in a transaction that stays open until the settlement commits it.

Row and outcome change together, and the row of a process that died is free as soon as the server ends its session. The
price is a connection, and an open transaction, for each delivery in work; and a crash cannot count as an attempt, for
the count is rolled back with everything else. So the settlement counts it.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from sqlqueue.connection import AfterCommit, Session
from sqlqueue.outcome import Move
from sqlqueue.roles import Role
from sqlqueue.sql import COMMIT, COMMIT_AND_CHAIN, Begin, Call, Statement, Step
from sqlqueue.statements import by_row_lock
from sqlqueue.strategies.claim import Claim, Turn, Turned
from sqlqueue.strategies.due import Inquiry
from sqlqueue.strategies.fifo import Heads
from sqlqueue.strategies.order import found_in_one_walk, unless_passed_over, waiting, waiting_rows
from sqlqueue.strategies.plan import Parameters, QueuePlan, Reading, count
from sqlqueue.strategies.scan import InOrder, Scan
from sqlqueue.strategies.settle import Settling, changed_nothing, reclaim

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
CLAIM_ONE = "{rows}"


class RowLock(Inquiry):
    """The row-lock strategy of one queue."""

    one_transaction: ClassVar[bool] = True
    by_session: ClassVar[bool] = True

    def __init__(self, plan: QueuePlan) -> None:
        sql = plan.sql
        reading = self._reading = Reading(plan)
        self._cap = plan.cap
        self._begin = Begin(sql.spec.isolation.upper()) if sql.spec.isolation else Begin()
        self._by_id = not sql.spec.has(Role.RETRY_AFTER)
        counted = count(plan, cleared=CLEARED)
        free = [unless_passed_over(sql)] if plan.by_key else []
        returned, lock = reading.select(counted), sql.dialect.skip_locked
        name = "claim by row lock"

        def take(name: str, rows: str) -> Statement:
            return sql.statement(name, CLAIM, width=reading.width, waiting=rows, returned=returned, skip_locked=lock)

        def take_one(name: str, rows: str) -> Statement:
            return sql.statement(name, CLAIM_ONE, width=reading.width, rows=rows)

        # A row that a row lock holds cannot be told from one that is free, but for the try to lock it.
        if sql.spec.fifo_column:
            self._scan: Scan = Heads(plan, reading, take, name, free=free, own_shown=True)
        elif plan.most == 1 and found_in_one_walk(sql):
            rows = partial(waiting_rows, sql, returned, 1)
            self._scan = InOrder(plan, reading, name=name, rows=rows, take=take_one, free=free, own_shown=True)
        else:
            rows = partial(waiting, sql, plan.most)
            self._scan = InOrder(plan, reading, name=name, rows=rows, take=take, free=free, own_shown=True)
        self._settling = Settling(plan, by_row_lock(sql, singly=plan.most == 1))
        self._reclaim = reclaim(sql, "lock again", counted=counted, skip_locked=lock)
        super().__init__(plan, Parameters(sql, group=plan.group, cap=plan.cap), self._scan.next_due)

    @property
    def claim(self) -> Statement:
        return self._scan.claim

    def statements(self) -> Sequence[Statement]:
        return [*self._scan.statements(), self._reclaim, self._unfinished, *self._settling.statements()]

    def turn(self, connection: Session, turn: Turn) -> Turned:
        """The rows to be settled are those that `connection` holds."""
        values = self._parameters.values(turn.now, turn.pass_over)
        calls, settled = self._settling.calls(turn, values) if turn.settlements else ([], [])
        if turn.settlements and not calls:
            connection.roll_back()  # they go back, which writes nothing
        for claim, settlement in turn.settlements if self._by_id else ():
            if settlement.move is Move.RETRY:
                self._scan.put_behind(claim)
        search = self._scan.begin(values, turn.limit, turn.now) if turn.limit else None
        steps: list[Step] = [*calls]
        if calls:
            steps.append(COMMIT_AND_CHAIN if search else COMMIT)
        elif search:
            steps.append(self._begin)
        steps += search.calls if search else ()
        try:
            results = connection.send(steps) if steps else []
        except AfterCommit as after:
            connection.roll_back()
            return Turned(gone=changed_nothing(settled, after.results), failed=after.__cause__)
        gone = changed_nothing(settled, results) if settled else ()
        if search is None:
            return Turned(gone=gone)
        try:
            found = results[len(calls) :]
            while self._scan.further(search, found):
                # In the transaction that holds rows already, else in a new one, without what this one guards.
                found = connection.send([*(() if search.rows else (COMMIT_AND_CHAIN,)), *search.calls])
            if not search.rows:
                self._end(connection)
            claims = self._reading.claims(self._scan.found(search, turn.now))
        except Exception as error:  # noqa: BLE001 - sorted by who asked; what was settled is committed
            failed = error.__cause__ if isinstance(error, AfterCommit) and error.__cause__ else error
            return Turned(gone=gone, failed=failed)
        return Turned(claims=claims, gone=gone)

    @staticmethod
    def _end(connection: Session) -> None:
        """End a transaction that locked nothing. A driver may forget its prepared statements at a rollback; psycopg
        does."""
        connection.send([COMMIT])

    def reclaim(self, connection: Session, claim: Claim) -> bool:
        connection.roll_back()
        values = {"id": claim.id, "group": self._group, "cap": self._cap, "attempt": claim.attempt}
        (rows,) = connection.send([self._begin, Call(self._reclaim, values)])
        if not rows:
            self._end(connection)
        return bool(rows)

    def take_over(self, connection: Session, claim: Claim) -> bool:
        return self.reclaim(connection, claim)

    def let_go(self, connection: Session, claim: Claim) -> None:
        connection.roll_back()
