"""Advisory lock: a lock on each row's key holds the row, in the session of the connection that serves the delivery.

No transaction stays open while the handler runs. Rows that share a key run one at a time, on every instance. A claim
finds candidates in claim order whose keys nobody holds, takes a key's lock without waiting, and then takes the row
while it is still claimable, counting the attempt. The settlement commits by itself; then the lock is released.

Here the locks are the database's own; key_locks.py does the same with locks that others keep.
"""

import logging
from collections.abc import Sequence
from functools import partial
from threading import Lock
from typing import Any, ClassVar

from sqlqueue.connection import AfterCommit, Session
from sqlqueue.dialect import Row
from sqlqueue.outcome import Move
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import COMMIT, Begin, Call, Statement, Step, fill
from sqlqueue.statements import by_advisory_lock
from sqlqueue.strategies.claim import Claim, Turn, Turned
from sqlqueue.strategies.due import Inquiry
from sqlqueue.strategies.order import found_in_one_walk, in_key_order, take, waiting, waiting_rows
from sqlqueue.strategies.plan import Parameters, QueuePlan, Reading
from sqlqueue.strategies.scan import InOrder, Search
from sqlqueue.strategies.settle import Settling, changed_nothing, reclaim

log = logging.getLogger("sqlqueue")

# A key is locked and its row then taken, all in one statement: `taken` reads the row anew, so that one which was worked
# off between this statement's beginning and its lock is not taken. The key's number comes back in any case, for then
# its lock must be released. No more locks are taken than asked for: the server tries candidates until it has them.
# `{candidates}` walks along the claim's index, as the lease's claim does; `{taken}` is TAKE in order.py, an UPDATE of
# the row by its id that counts the attempt.
CLAIM = """
WITH {held}_candidates AS MATERIALIZED (
    {candidates}
),
_locked AS MATERIALIZED (
    SELECT id, number FROM _candidates
    WHERE {try_lock}
    LIMIT :limit
),
_taken({names}) AS (
    {taken}
)
SELECT {taken_names}, _locked.number FROM {relaxed}
CROSS JOIN _locked
LEFT JOIN _taken ON TRUE
"""

# The same where of the candidates that share a key the first is tried alone: in a batch, for a session may lock a key
# twice, and in key order, for the first may fail and its lock go while others of its key are tried.
CLAIM_FIRSTS = """
WITH {held}_candidates AS MATERIALIZED (
    {candidates}
),
_first AS MATERIALIZED (
    SELECT id, number FROM (
        SELECT id, number, place, row_number() OVER (PARTITION BY number ORDER BY place) AS turn FROM (
            SELECT id, number, row_number() OVER () AS place FROM _candidates
        ) AS _placed
    ) AS _turns
    WHERE turn = 1
    ORDER BY place
),
_locked AS MATERIALIZED (
    SELECT id, number FROM _first
    WHERE {try_lock}
    LIMIT :limit
),
_taken({names}) AS (
    {taken}
)
SELECT {taken_names}, _locked.number FROM {relaxed}
CROSS JOIN _locked
LEFT JOIN _taken ON {taken_id} = {locked_id}
ORDER BY {taken_id} IS NULL
"""

# An array, for the rows are then looked up by their ids whatever the planner thinks of their number.
OF_BATCH = "ANY (ARRAY(SELECT _locked.id FROM _locked))"
OF_ONE = "(SELECT _locked.id FROM _locked)"

# What every session of the database holds takes three times as long to find out as to try some locks in vain, so this
# is done where those that were tried were all held.
HELD = """
_held AS MATERIALIZED (
    {locked_numbers}
),

"""

# Where rows are not found in one walk.
CANDIDATES = """
SELECT {id} AS id, {number} AS number FROM {table}
JOIN (
    {waiting}
) AS _waiting ON {id} = _waiting.id
ORDER BY {claim_order}
"""

NOT_HELD = "{number} NOT IN (SELECT number FROM _held)"
NOT_HELD_NOW = "{number} NOT IN ({locked_numbers})"

#: Candidates of a claim of one row, and further ones for each row of a batch: others may lock some between the
#: statement's beginning and its own try, and hold some that they have not settled.
MOST, FURTHER = 32, 2

#: So many, not for the planner to know: on a table without statistics it takes fewer rows to be due than these, and
#: sorts all there are instead of walking along the index (20,000 rows: 19 ms a claim against 2).
HIDDEN = "(SELECT {most})"

LOCK = """
SELECT {try_lock} AS locked
"""

UNLOCK = """
SELECT {unlock} AS unlocked
"""

UNLOCK_BATCH = """
SELECT {unlock} AS unlocked
{from_given}
"""

#: How the locks of a batch are given to a statement.
NUMBER = ColumnSpec(field="number", type=int)


def _candidates(sql: QueueSQL, number: str, batch: int, conditions: Sequence[str]) -> str:
    most = MOST + FURTHER * (batch - 1)
    names = {"id": sql.column(Role.ID), "number": number}
    if found_in_one_walk(sql):
        select = fill("{id} AS id, {number} AS number", names)
        return waiting_rows(sql, select, fill(HIDDEN, {"most": str(most)}), conditions, locked=False)
    shape = {
        **names,
        "table": sql.dialect.table(sql.spec),
        "waiting": waiting(sql, most, conditions, locked=False),
        "claim_order": ", ".join(sql.order()),
    }
    return fill(CANDIDATES, shape)


def _claim(plan: QueuePlan, reading: Reading, held: str, name: str, rows: str) -> Statement:
    """`held`: what the claim looks up before its candidates, `rows`."""
    dialect, one = plan.sql.dialect, plan.most == 1
    names = [f"c{place}" for place in range(reading.width)]
    return plan.sql.statement(
        name,
        CLAIM if one and not plan.by_key else CLAIM_FIRSTS,
        width=reading.width + 1,
        held=held,
        candidates=rows,
        try_lock=dialect.try_lock("number"),
        names=", ".join(names),
        taken=take(plan, reading, OF_ONE if one else OF_BATCH),
        taken_names=", ".join(f"_taken.{name}" for name in names),
        taken_id=f"_taken.{names[reading.id_at]}",
        locked_id=dialect.read(plan.sql.spec.id, "_locked.id"),
        relaxed=dialect.relaxed,
    )


#: Claims in a row that search past held keys at once, after one that had to; fewer where they find nothing there.
PAST = 32

#: Tries for another row where one was worked off before its lock was taken, or is locked otherwise.
TRIES = 10


class Advisory(Inquiry):
    """The advisory-lock strategy of one queue, with the locks of the database's sessions. The rows of a batch are each
    of another key; a claim's token is its lock's number."""

    one_transaction: ClassVar[bool] = False
    by_session: ClassVar[bool] = True

    def __init__(self, plan: QueuePlan) -> None:
        sql, dialect = plan.sql, plan.sql.dialect
        self._name, self._singly = sql.spec.full_name, plan.most == 1
        self._by_id = not sql.spec.has(Role.RETRY_AFTER)
        reading = self._reading = Reading(plan)
        number = dialect.number_of(sql.lock_key())
        passing = in_key_order(sql) if plan.by_key else []
        locked = {"number": number, "locked_numbers": dialect.locked_numbers}
        scan = partial(InOrder, plan, reading, rows=partial(_candidates, sql, number, plan.most))
        self._near = scan(name="claim by advisory lock", take=partial(_claim, plan, reading, ""), free=passing)
        self._past = scan(
            name="claim by advisory lock, past those held",
            take=partial(_claim, plan, reading, fill(HELD, locked)),
            free=[fill(NOT_HELD, locked), *passing],
            free_now=[fill(NOT_HELD_NOW, locked), *passing],
        )
        self._begin_past = 0
        self._changing = Lock()
        settlements = by_advisory_lock(sql, capped=plan.cap is not None, singly=self._singly)
        self._settling = Settling(plan, settlements)
        self._lock = sql.statement("lock again", LOCK, width=1, try_lock=dialect.try_lock(":number"))
        if self._singly:
            self._unlock = sql.statement("unlock", UNLOCK, width=1, unlock=dialect.unlock(":number"))
        else:
            unlock = dialect.unlock(sql.given("number"))
            self._unlock = sql.settlement("unlock", UNLOCK_BATCH, {"number": NUMBER}, unlock=unlock)
        self._reclaim = reclaim(sql, "find again")
        parameters = Parameters(sql, group=plan.group, cap=plan.cap, constants=sql.lock_texts())
        super().__init__(plan, parameters, self._past.next_due)

    @property
    def claim(self) -> Statement:
        return self._near.claim

    def statements(self) -> Sequence[Statement]:
        found = [*self._near.claims(), *self._past.statements()]
        return [*found, self._unlock, self._lock, self._reclaim, self._unfinished, *self._settling.statements()]

    def turn(self, connection: Session, turn: Turn) -> Turned:
        """The rows to be settled are those whose locks `connection` holds."""
        values = self._parameters.values(turn.now, turn.pass_over)
        calls, settled = self._settling.calls(turn, values) if turn.settlements else ([], [])
        if self._by_id and turn.settlements:
            self._put_behind(turn)
        with self._changing:  # decided: where this claim begins
            scan = self._past if self._begin_past else self._near
        search = scan.begin(values, turn.limit, turn.now) if turn.limit else None
        unlocking = self._unlocking([claim.token for claim, _ in turn.settlements])
        steps: list[Step] = [Begin(), *calls, COMMIT] if calls else []
        steps += [*unlocking, *(search.calls if search else ())]
        try:
            results = self._send(connection, steps, settles=bool(calls))
        except AfterCommit as after:
            connection.close()  # whatever it locked
            return Turned(gone=changed_nothing(settled, after.results), failed=after.__cause__)
        gone = changed_nothing(settled, results)
        released = results[len(calls) : len(calls) + len(unlocking)]
        if not all(row[0] for rows in released for row in rows):
            # Nobody knows what it holds; with its session all of it ends.
            log.warning("queue %s: an advisory lock was not released; its connection is closed", self._name)
            connection.close()
            return Turned(gone=gone)
        if search is None:
            return Turned(gone=gone)
        try:
            claims = self._found(connection, scan, search, results[len(calls) + len(unlocking) :], turn)
        except Exception as error:  # noqa: BLE001 - sorted by who asked; what was settled is committed
            return Turned(gone=gone, failed=error)
        return Turned(claims=claims, gone=gone)

    def _put_behind(self, turn: Turn) -> None:
        """In the order of ids alone, rows that come back at once would be claimed before those behind them."""
        for claim, settlement in turn.settlements:
            if settlement.move is Move.RETRY:
                self._near.put_behind(claim)
                self._past.put_behind(claim)

    @staticmethod
    def _send(connection: Session, steps: Sequence[Step], *, settles: bool) -> list[list[Row]]:
        """A claim that fails may have locked a key all the same; a settlement that fails still holds its own."""
        done = False
        try:
            results = connection.send(steps) if steps else []
            done = True
        finally:
            if not done and not settles:
                connection.close()
        return results

    def _found(
        self, connection: Session, scan: InOrder, search: Search, results: Sequence[Sequence[Row]], turn: Turn
    ) -> list[Claim]:
        """The claims that the search finds, going on until it finds some or is at the queue's end."""
        begun, id_at, rows = scan, self._reading.id_at, results[-1]
        vain: list[Any] = []
        tries = 0
        while not rows or rows[0][id_at] is None:
            # One that was worked off before its lock was taken, or that somebody has locked otherwise. Its lock stays
            # until another is found: held keys are left out.
            vain += [row[-1] for row in rows]
            tries += 1 if rows else 0
            goes_on = not rows and scan.further(search, results)
            if tries == TRIES or (not goes_on and scan is self._past and not rows):
                rows = ()
                break
            if not goes_on:
                scan, search = self._past, self._past.begin(search.values, search.limit, turn.now)
            results = self._send(connection, search.calls, settles=False)
            rows = results[-1]
        if not self._singly:
            vain += [row[-1] for row in rows if row[id_at] is None]
        search.rows = [row for row in rows if row[id_at] is not None]
        found = scan.found(search, turn.now)
        if vain:
            self._send(connection, self._unlocking(vain), settles=False)
        if not found:
            return []
        with self._changing:  # decided: where the next claims begin; where held keys were in the way, past those
            self._begin_past = PAST if scan is not begun else max(0, self._begin_past - 1)
        return [claim for row in found for claim in self._reading.claims([row], token=row[-1])]

    def _unlocking(self, numbers: Sequence[Any]) -> Sequence[Call]:
        if self._singly:
            return [Call(self._unlock, {"number": number}) for number in numbers]
        return [Call(self._unlock, {"number": numbers})] if numbers else []

    def reclaim(self, connection: Session, claim: Claim) -> bool:
        """The lock outlives a transaction that failed."""
        connection.roll_back()
        return not connection.closed

    def take_over(self, connection: Session, claim: Claim) -> bool:
        """The lock went with its session: it is taken again, before anybody else had the row or else not."""
        values = {"id": claim.id, "group": self._group, "attempt": claim.attempt}
        (locked,), found = self._send(
            connection, [Call(self._lock, {"number": claim.token}), Call(self._reclaim, values)], settles=False
        )
        if locked[0] and not found:
            self._send(connection, self._unlocking([claim.token]), settles=False)
        return bool(locked[0] and found)

    def let_go(self, connection: Session, claim: Claim) -> None:
        if not self._singly:
            connection.roll_back()
        if self._singly or connection.closed:
            connection.close()
            return
        try:  # its session may hold other rows
            (released,) = self._send(connection, self._unlocking([claim.token]), settles=False)
        except Exception:
            log.exception("queue %s: an advisory lock was not released; its connection is closed", self._name)
            return
        if not released[0][0]:
            connection.close()
