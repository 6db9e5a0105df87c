"""How a key is locked by the database, and its row then taken, in one statement.

Advisory lock: a lock on each row's key holds the row, in the session of the connection that serves the delivery.

No transaction stays open while the handler runs. Rows that share a key run one at a time, on every instance. A claim
finds candidates in claim order whose keys nobody holds, takes a key's lock without waiting, and then takes the row
while it is still claimable, counting the attempt. The settlement commits by itself; then the lock is released.

Here the locks are the database's own; `by_function` does the same with locks that others keep.
"""

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from sqlqueue.connection import AfterCommit, Session
from sqlqueue.dialect import Row
from sqlqueue.outcome import Move, Settlement
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import COMMIT, Begin, Call, Statement, Step, fill
from sqlqueue.statements import by_advisory_lock, unfinished
from sqlqueue.strategies.claim import NOBODY, Ahead, Claim, PassOver, Turned
from sqlqueue.strategies.dead_letter import DeadLetters
from sqlqueue.strategies.due import due_reader
from sqlqueue.strategies.order import found_in_one_walk, in_key_order, take, waiting, waiting_rows
from sqlqueue.strategies.plan import Parameters, Reading
from sqlqueue.strategies.scan import InOrder, Look
from sqlqueue.strategies.settle import Settling, reclaim, turned_without_loss

log = logging.getLogger("sqlqueue")


# A key is locked and its row then taken, all in one statement: `taken` reads the row anew, so that one which was worked
# off between this statement's beginning and its lock is not taken. The key's number comes back in any case, for then
# its lock must be released. No more locks are taken than asked for: the server tries candidates until it has them.
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


def candidates(sql: QueueSQL, number: str, batch: int, conditions: Sequence[str]) -> str:
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


def claim_of(
    sql: QueueSQL, reading: Reading, batch: int, *, capped: bool, by_key: bool = False, held: str = ""
) -> Callable[[str, str], Statement]:
    """Makes the claim of one row or of a batch, of its name and the candidates. `held`: what else it looks up first."""
    dialect = sql.dialect
    names = [f"c{place}" for place in range(reading.width)]

    def make(name: str, rows: str) -> Statement:
        return sql.statement(
            name,
            CLAIM if batch == 1 and not by_key else CLAIM_FIRSTS,
            width=reading.width + 1,
            held=held,
            candidates=rows,
            try_lock=dialect.try_lock("number"),
            names=", ".join(names),
            taken=take(sql, reading, capped=capped, candidate=OF_ONE if batch == 1 else OF_BATCH),
            taken_names=", ".join(f"_taken.{name}" for name in names),
            taken_id=f"_taken.{names[reading.id_at]}",
            locked_id=dialect.read(sql.spec.id, "_locked.id"),
            relaxed=dialect.relaxed,
        )

    return make


def lock(sql: QueueSQL) -> Statement:
    """The statement that tries a lock by its number."""
    return sql.statement("lock again", LOCK, width=1, try_lock=sql.dialect.try_lock(":number"))


def unlock(sql: QueueSQL, batch: int) -> Statement:
    """The statement that releases a lock, or those of a batch."""
    if batch == 1:
        return sql.statement("unlock", UNLOCK, width=1, unlock=sql.dialect.unlock(":number"))
    return sql.settlement("unlock", UNLOCK_BATCH, {"number": NUMBER}, unlock=sql.dialect.unlock(sql.given("number")))


#: Claims in a row that look past held keys at once, after one that had to; fewer where they find nothing there.
PAST = 32

#: Looks for another row where one was worked off before its lock was taken, or is locked otherwise.
TRIES = 10


class Advisory:
    """The advisory-lock strategy of one queue, with the locks of the database's sessions.

    `columns` are what the handler reads of a row, `cap` the attempts after which a row is spent (None: no cap),
    `by_key` whether claims pass keys over, `most` the most rows that one claim takes, each of another key, `leaving`
    how rows become dead letters (None: they do not). A claim's token is its lock's number.
    """

    one_transaction: ClassVar[bool] = False
    by_session: ClassVar[bool] = True

    def __init__(
        self,
        sql: QueueSQL,
        *,
        columns: Sequence[ColumnSpec],
        cap: int | None = None,
        group: str | None = None,
        by_key: bool = False,
        most: int = 1,
        leaving: DeadLetters | None = None,
    ) -> None:
        dialect = sql.dialect
        self._name = sql.spec.full_name
        self._reading = Reading(sql, columns)
        self._group = group
        number = dialect.number_of(sql.lock_key())
        passing = in_key_order(sql) if by_key else []
        rows = partial(candidates, sql, number, most)
        take = partial(claim_of, sql, self._reading, most, by_key=by_key)
        locked = {"number": number, "locked_numbers": dialect.locked_numbers}
        scan = partial(InOrder, sql, self._reading, rows=rows, by_key=by_key)
        self._near = scan(name="claim by advisory lock", take=take(capped=cap is not None), free=passing)
        self._past = scan(
            name="claim by advisory lock, past those held",
            take=take(capped=cap is not None, held=fill(HELD, locked)),
            free=[fill(NOT_HELD, locked), *passing],
            free_now=[fill(NOT_HELD_NOW, locked), *passing],
        )
        self._begin_past = 0
        settlements = by_advisory_lock(sql, capped=cap is not None, singly=most == 1)
        self._settling = Settling(sql, settlements, cap=cap, leaving=leaving)
        self._binding = Parameters(sql, group=group, cap=cap, constants=sql.lock_texts())
        self._unlock, self._singly = unlock(sql, most), most == 1
        self._lock, self._again = lock(sql), reclaim(sql, "find again")
        self._unfinished = unfinished(sql)
        self._read_ahead = due_reader(sql)

    @property
    def claim(self) -> Statement:
        return self._near.claim

    def statements(self) -> Sequence[Statement]:
        found = [self._near.claim, *self._near.onward, *self._past.statements()]
        return [*found, self._unlock, self._lock, self._again, self._unfinished, *self._settling.statements()]

    def turn(
        self,
        connection: Session,
        settlements: Sequence[tuple[Claim, Settlement]],
        limit: int,
        now: datetime,
        pass_over: PassOver = NOBODY,
    ) -> Turned:
        """The rows to be settled are those whose locks `connection` holds."""
        values = self._binding.values(now, pass_over)
        settling = self._settling.calls(settlements, values, now)
        for claim, settlement in settlements:
            if settlement.move is Move.RETRY:
                self._near.again(claim)
                self._past.again(claim)
        steps: list[Step] = [Begin(), *(call for call, _ in settling), COMMIT] if settling else []
        unlocking = self._unlocking([claim.token for claim, _ in settlements])
        scan = self._past if self._begin_past else self._near
        look = scan.look(values, limit, now) if limit else None
        steps += [*unlocking, *(look.calls if look else ())]
        try:
            results = self._send(connection, steps, settles=bool(settling))
        except AfterCommit as after:
            connection.close()  # whatever it locked
            return turned_without_loss((), settling, after.results, failed=after.__cause__)
        released = results[len(settling) : len(settling) + len(unlocking)]
        if not all(row[0] for rows in released for row in rows):
            # Nobody knows what it holds; with its session all of it ends.
            log.warning("queue %s: an advisory lock was not released; its connection is closed", self._name)
            connection.close()
            return turned_without_loss((), settling, results)
        found = results[len(settling) + len(unlocking) :]
        try:
            claims = self._found(connection, scan, look, found, now) if look else ()
        except Exception as error:  # noqa: BLE001 - sorted by who asked; what was settled is committed
            return turned_without_loss((), settling, results, failed=error)
        return turned_without_loss(claims, settling, results)

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
        self, connection: Session, scan: InOrder, look: Look, results: Sequence[Sequence[Row]], now: datetime
    ) -> list[Claim]:
        """The claim that the looks find, until one is found or the queue is at its end."""
        begun, found = scan, results[-1]
        vain: list[Any] = []
        tries = 0
        while not found or found[0][self._reading.id_at] is None:
            # One that was worked off before its lock was taken, or that somebody has locked otherwise. Its lock stays
            # until another is found: held keys are left out.
            vain += [row[-1] for row in found]
            further = None if found else scan.further(look, results)
            tries += 1 if found else 0
            if tries == TRIES or (further is None and scan is self._past and not found):
                found = ()
                break
            if further is None:
                scan, further = self._past, self._past.look(look.values, look.asked, now)
            look = further
            results = self._send(connection, look.calls, settles=False)
            found = results[-1]
        if not self._singly:
            vain += [row[-1] for row in found if row[self._reading.id_at] is None]
            found = [row for row in found if row[self._reading.id_at] is not None]
        found = scan.claimed(found, look, now)
        if vain:
            self._send(connection, self._unlocking(vain), settles=False)
        if not found:
            return []
        # Where rows stand behind many whose keys are held, the next claims look past those at once.
        self._begin_past = PAST if scan is not begun else max(0, self._begin_past - 1)
        if self._singly:
            return self._reading.claims(found, token=found[0][-1])
        return [claim for row in found for claim in self._reading.claims([row], token=row[-1])]

    def _unlocking(self, numbers: Sequence[Any]) -> Sequence[Call]:
        if self._singly:
            return [Call(self._unlock, {"number": number}) for number in numbers]
        return [Call(self._unlock, {"number": numbers})] if numbers else []

    def hold_again(self, connection: Session, claim: Claim) -> bool:
        """The lock outlives a transaction that failed."""
        connection.roll_back()
        return not connection.closed

    def take_over(self, connection: Session, claim: Claim) -> bool:
        """The lock went with its session: it is taken again, before anybody else had the row or else not."""
        values = {"id": claim.id, "group": self._group, "attempt": claim.attempt}
        (locked,), found = self._send(
            connection, [Call(self._lock, {"number": claim.token}), Call(self._again, values)], settles=False
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

    def look_ahead(self, connection: Session, now: datetime, pass_over: PassOver = NOBODY, held: int = 0) -> Ahead:
        (rows,) = connection.run([Call(self._past.ahead, self._binding.values(now, pass_over))])
        return self._read_ahead(rows)

    def unfinished(self, connection: Session, id: object) -> bool:
        return bool(connection.run([Call(self._unfinished, {"id": id, "group": self._group})])[0])
