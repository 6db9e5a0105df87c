"""Advisory lock: a lock on each row's key holds the row, in the session of the connection that serves the delivery.

No transaction stays open while the handler runs. Rows that share a key run one at a time, on every instance. A claim
finds candidates in claim order whose keys nobody holds, takes a key's lock without waiting, and then takes the row
while it is still claimable, counting the attempt. The settlement commits by itself; then the lock is released.

Here the locks are the database's own; `by_function` does the same with locks that others keep.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from functools import partial

from sqlqueue.column import Role
from sqlqueue.connection import AfterCommit, Session
from sqlqueue.dialect import Row
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import COMMIT, Begin, Call, Statement, Step, fill
from sqlqueue.statements import by_advisory_lock, unfinished
from sqlqueue.strategies.ahead import reader
from sqlqueue.strategies.base import NOBODY, Ahead, Claim, Move, PassOver, Settlement, Turned
from sqlqueue.strategies.binding import Binding
from sqlqueue.strategies.leaving import Leaving
from sqlqueue.strategies.reading import Reading
from sqlqueue.strategies.scan import InOrder, Look
from sqlqueue.strategies.settling import Settling, told
from sqlqueue.strategies.taking import take
from sqlqueue.strategies.waiting import found_in_one_walk, unless_passed_over, waiting, waiting_rows
from sqlqueue.words import Words

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

UNLOCK = """
SELECT {unlock} AS unlocked
"""

#: Candidates of one claim: others may lock some between the statement's beginning and its own try.
MOST = 32

#: The same, not for the planner to know: on a table without statistics it takes fewer rows to be due than these, and
#: sorts all there are instead of walking along the index (20,000 rows: 19 ms a claim against 2).
MOST_HIDDEN = fill("(SELECT {most})", {"most": str(MOST)})

#: Claims in a row that look past held keys at once, after one that had to; fewer where they find nothing there.
PAST = 32

#: Looks for another row where one was worked off before its lock was taken, or is locked otherwise.
TRIES = 10


def _candidates(words: Words, number: str, conditions: Sequence[str]) -> str:
    names = {"id": words.column(Role.ID), "number": number}
    if found_in_one_walk(words):
        select = fill("{id} AS id, {number} AS number", names)
        return waiting_rows(words, select, MOST_HIDDEN, conditions, locked=False)
    shape = {
        **names,
        "table": words.dialect.table(words.spec),
        "waiting": waiting(words, MOST, conditions, locked=False),
        "claim_order": ", ".join(words.order()),
    }
    return fill(CANDIDATES, shape)


def _take(words: Words, reading: Reading, capped: bool, held: str, name: str, rows: str) -> Statement:
    dialect = words.dialect
    names = [f"c{place}" for place in range(reading.width)]
    return words.statement(
        name,
        CLAIM,
        width=reading.width + 1,
        held=held,
        candidates=rows,
        try_lock=dialect.try_lock("number"),
        names=", ".join(names),
        taken=take(words, reading, capped=capped, candidate="(SELECT _locked.id FROM _locked)"),
        taken_names=", ".join(f"_taken.{name}" for name in names),
        relaxed=dialect.relaxed,
    )


class Advisory:
    """The advisory-lock strategy of one queue, with the locks of the database's sessions.

    `columns` are what the handler reads of a row, `cap` the attempts after which a row is spent (None: no cap),
    `by_key` whether claims pass keys over, `leaving` how rows become dead letters (None: they do not). It claims one
    row at a time. A claim's token is its lock's number.
    """

    def __init__(
        self,
        words: Words,
        *,
        columns: Sequence[ColumnSpec],
        cap: int | None = None,
        group: str | None = None,
        by_key: bool = False,
        leaving: Leaving | None = None,
    ) -> None:
        dialect = words.dialect
        self._name = words.spec.full_name
        self._reading = Reading(words, columns)
        self._group = group
        number = dialect.number_of(words.lock_key())
        passing = [unless_passed_over(words)] if by_key else []
        rows, take = partial(_candidates, words, number), partial(_take, words, self._reading, cap is not None)
        locked = {"number": number, "locked_numbers": dialect.locked_numbers}
        self._near = InOrder(
            words,
            self._reading,
            name="claim by advisory lock",
            rows=rows,
            take=partial(take, ""),
            free=passing,
            by_key=by_key,
        )
        self._past = InOrder(
            words,
            self._reading,
            name="claim by advisory lock, past those held",
            rows=rows,
            take=partial(take, fill(HELD, locked)),
            free=[fill(NOT_HELD, locked), *passing],
            free_now=[fill(NOT_HELD_NOW, locked), *passing],
            by_key=by_key,
        )
        self._begin_past = 0
        self._settling = Settling(words, by_advisory_lock(words, capped=cap is not None), cap=cap, leaving=leaving)
        self._binding = Binding(words, group=group, cap=cap, constants=words.lock_texts())
        self._unlock = words.statement("unlock", UNLOCK, width=1, unlock=dialect.unlock(":number"))
        self._unfinished = unfinished(words)
        self._read_ahead = reader(words)

    @property
    def claim(self) -> Statement:
        return self._near.claim

    def statements(self) -> Sequence[Statement]:
        found = [self._near.claim, *self._near.onward, *self._past.statements()]
        return [*found, self._unlock, self._unfinished, *self._settling.statements()]

    def turn(
        self,
        connection: Session,
        settlements: Sequence[tuple[Claim, Settlement]],
        limit: int,
        now: datetime,
        pass_over: PassOver = NOBODY,
    ) -> Turned:
        """The rows to be settled are those whose locks `connection` holds. `limit` is 0 or 1."""
        values = self._binding.values(now, pass_over)
        settling = self._settling.calls(settlements, values, now)
        for claim, settlement in settlements:
            if settlement.move is Move.RETRY:
                self._near.again(claim)
                self._past.again(claim)
        steps: list[Step] = [Begin(), *(call for call, _ in settling), COMMIT] if settling else []
        unlocking = [self._release(claim) for claim, _ in settlements]
        scan = self._past if self._begin_past else self._near
        look = scan.look(values, 1, now) if limit else None
        steps += [*unlocking, *(look.calls if look else ())]
        try:
            results = self._send(connection, steps, settles=bool(settling))
        except AfterCommit as after:
            connection.close()  # whatever it locked
            return told((), settling, after.results, failed=after.__cause__)
        released = results[len(settling) : len(settling) + len(unlocking)]
        if not all(row[0] for rows in released for row in rows):
            # Nobody knows what it holds; with its session all of it ends.
            log.warning("queue %s: an advisory lock was not released; its connection is closed", self._name)
            connection.close()
            return told((), settling, results)
        found = results[len(settling) + len(unlocking) :]
        try:
            claims = self._found(connection, scan, look, found, now) if look else ()
        except Exception as error:  # noqa: BLE001 - sorted by who asked; what was settled is committed
            return told((), settling, results, failed=error)
        return told(claims, settling, results)

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
        vain: list[Call] = []
        while not found or found[0][self._reading.id_at] is None:
            # One that was worked off before its lock was taken, or that somebody has locked otherwise. Its lock stays
            # until another is found: held keys are left out.
            vain += [Call(self._unlock, {"number": row[-1]}) for row in found]
            further = None if found else scan.further(look, results)
            if len(vain) == TRIES or (further is None and scan is self._past and not found):
                found = ()
                break
            if further is None:
                scan, further = self._past, self._past.look(look.values, 1, now)
            look = further
            results = self._send(connection, look.calls, settles=False)
            found = results[-1]
        scan.claimed(found, look, now)
        if vain:
            self._send(connection, vain, settles=False)
        if not found:
            return []
        # Where rows stand behind many whose keys are held, the next claims look past those at once.
        self._begin_past = PAST if scan is not begun else max(0, self._begin_past - 1)
        return self._reading.claims(found, token=found[0][-1])

    def _release(self, claim: Claim) -> Call:
        return Call(self._unlock, {"number": claim.token})

    def hold_again(self, connection: Session, claim: Claim) -> bool:
        """The lock outlives a transaction that failed."""
        connection.roll_back()
        return not connection.closed

    def let_go(self, connection: Session, claim: Claim) -> None:
        connection.close()

    def look_ahead(self, connection: Session, now: datetime, pass_over: PassOver = NOBODY, held: int = 0) -> Ahead:
        (rows,) = connection.run([Call(self._past.ahead, self._binding.values(now, pass_over))])
        return self._read_ahead(rows)

    def unfinished(self, connection: Session, id: object) -> bool:
        return bool(connection.run([Call(self._unfinished, {"id": id, "group": self._group})])[0])
