"""Lease: the claim writes an expiry into the row and commits; that expiry is the token of ownership.

The claim reads *now* once: due rows, ended leases and the new expiry all start from that instant. A settlement
takes effect only while the row still holds the token, so whoever comes late changes nothing, and learns of it. No
transaction and no connection is held while the handler runs.

`TransactionalLease` is for transactional handlers, whose deliveries hold a connection as well, for the transaction that
settles them. The claim commits by itself, as for every lease, so that a crash counts as an attempt. The acknowledgement
takes effect only while the row holds the token; else what the handler wrote is rolled back, and the lease was lost.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import ClassVar

from sqlqueue.clock import round_up
from sqlqueue.dialect import Connection
from sqlqueue.outcome import Move
from sqlqueue.queue_sql import also
from sqlqueue.roles import Role
from sqlqueue.sql import Call, Statement
from sqlqueue.statements import by_lease, present
from sqlqueue.strategies.claim import Claim, Turn, Turned
from sqlqueue.strategies.due import Inquiry
from sqlqueue.strategies.fifo import Heads
from sqlqueue.strategies.order import unleased, unless_passed_over, waiting
from sqlqueue.strategies.plan import Parameters, QueuePlan, Reading, Shape, count
from sqlqueue.strategies.scan import SWEEP_AFTER, InOrder, Scan
from sqlqueue.strategies.settle import Settling, changed_nothing, missing
from sqlqueue.strategies.transaction import Transaction

# Rows are locked first, in claim order and passing over those that others have locked, and then updated: a bare
# `IN (SELECT … LIMIT …)` may be evaluated again and claim more than its limit. `{waiting}` is, where one walk along
# the index finds the rows:
#
#     SELECT id FROM jobs
#     WHERE <not finished, due, and no lease or an ended one>
#     ORDER BY <retry_after,> id
#     LIMIT 16
#     FOR NO KEY UPDATE SKIP LOCKED
#
# (order.py has the other ways, tests/golden the whole statement for each kind of table.) Two limits: the literal one
# lets the server plan once for a short range of the index (a bound limit is taken for a tenth of the table, so that
# the statement would be planned anew each time: measured, a third of a turn); the bound one says how many.
CLAIM = """
WITH _due AS MATERIALIZED (
    SELECT id FROM (
        {waiting}
    ) AS _waiting
    LIMIT :limit
)
UPDATE {table}
SET {lease} = :expires{claimed}
FROM _due
WHERE {id} = _due.id
RETURNING {returned}
"""

# An extension moves the token forward; whoever settles takes the delivery out of the reach of extensions first. It
# passes over rows that are locked, such as by a handler's transaction: waiting for one, it would let all others' leases
# end.
EXTEND = """
UPDATE {table}
SET {extended}
FROM (
    SELECT {id} AS id FROM {table}
    {joined_given}
    WHERE {id} = {given_id} {fence}
    {skip_locked}
) AS _free
WHERE {id} = _free.id
RETURNING {id}
"""

# Which of the rows that were not extended still have their tokens: nobody takes those while they are locked.
STILL = """
SELECT {id} FROM {table}
{joined_given}
WHERE {id} = {given_id} {fence}
"""

# A row whose last worker was lost still shows that worker's lease.
CLEARED = "{lease} IS NULL AND {attempt} >= :cap"


#: The decimal digits of a second that a datetime holds.
MICROSECONDS = 6


class Lease(Inquiry):
    """The lease strategy of one queue."""

    def __init__(self, plan: QueuePlan) -> None:
        sql, column = plan.sql, plan.sql.spec.role(Role.LEASE)
        assert column is not None
        assert plan.lease is not None
        shape = plan.shape or Shape(settlements=by_lease(sql))
        self._lease = timedelta(seconds=plan.lease)
        self._digits = plan.precision if plan.precision is not None and plan.precision < MICROSECONDS else None
        self._by_id = not sql.spec.has(Role.RETRY_AFTER)
        self._reading = Reading(plan)
        free = [unleased(sql), *([unless_passed_over(sql)] if plan.by_key else []), *shape.free]
        take = partial(_claim, plan, self._reading, shape)
        name = "claim by lease"
        rows = partial(waiting, sql, plan.most)
        self._scan: Scan = (
            Heads(plan, self._reading, take, name, free=free, own_shown=False)
            if sql.spec.fifo_column
            else InOrder(plan, self._reading, name=name, rows=rows, take=take, free=free)
        )
        self._settling = Settling(plan, shape.settlements)
        parameters = Parameters(sql, group=plan.group, cap=plan.cap, moments=shape.moments)
        super().__init__(plan, parameters, self._scan.next_due)
        held, skip = {"id": sql.spec.id, "token": column}, sql.dialect.skip_locked
        extended = ", ".join(sql.assignments("extend"))
        self._extend = sql.settlement("extend", EXTEND, held, extended=extended, skip_locked=skip)
        self._still = sql.settlement("is it still held", STILL, held)
        self._present = present(sql)
        self._encode = sql.dialect.encoder(column)

    @property
    def claim(self) -> Statement:
        return self._scan.claim

    def statements(self) -> Sequence[Statement]:
        own = (self._extend, self._still, self._present, self._unfinished)
        return [*self._scan.statements(), *own, *self._settling.statements()]

    def turn(self, connection: Connection, turn: Turn) -> Turned:
        now = turn.now
        values = self._parameters.values(now, turn.pass_over)
        calls, settled = self._settling.calls(turn, values) if turn.settlements else ([], [])
        if self._by_id and turn.settlements:
            self._put_behind(turn)
        claims: Sequence[Claim] = ()
        if not turn.limit:
            results = connection.run(calls) if calls else []
        else:
            expires = now + self._lease
            if self._digits is not None:
                expires = round_up(expires, self._digits)
            token = values["expires"] = expires if self._encode is None else self._encode(expires)
            search = self._scan.begin(values, turn.limit, now)
            results = connection.run([*calls, *search.calls], durable=bool(calls))
            found = results[len(calls) :]
            while self._scan.further(search, found):
                found = connection.run(search.calls, durable=False)
            claims = self._reading.claims(self._scan.found(search, now), token, expires)
        late = changed_nothing(settled, results) if settled else ()
        if not late:
            return Turned(claims=claims)
        gone = [claim for claim in late if not connection.run([Call(self._present, {"id": claim.id})])[0]]
        return Turned(claims=claims, lost=[claim for claim in late if claim not in gone], gone=gone)

    def _put_behind(self, turn: Turn) -> None:
        """In the order of ids alone, rows that come back at once would be claimed before those behind them."""
        for claim, settlement in turn.settlements:
            due = settlement.due
            if settlement.move is Move.RETRY and (due is None or due < turn.now + SWEEP_AFTER):
                self._scan.put_behind(claim)

    def extend(self, connection: Connection, claims: Sequence[Claim], now: datetime) -> Sequence[Claim]:
        expires = round_up(now + self._lease, self._digits)
        token = expires if self._encode is None else self._encode(expires)
        given = {"id": [claim.id for claim in claims], "token": [claim.token for claim in claims], "expires": token}
        (rows,) = connection.run([Call(self._extend, given)])
        missed = missing(claims, rows)
        for claim in claims:
            if claim not in missed:
                claim.token, claim.expires = token, expires
        if not missed:
            return missed
        given = {"id": [claim.id for claim in missed], "token": [claim.token for claim in missed]}
        return missing(missed, connection.run([Call(self._still, given)])[0])


def _claim(plan: QueuePlan, reading: Reading, shape: Shape, name: str, rows: str) -> Statement:
    sql, counted = plan.sql, count(plan, cleared=CLEARED)
    claimed = sql.assignments("claim", but=Role.LEASE, values={"counted": counted or ""})
    return sql.statement(
        name,
        CLAIM,
        width=reading.width,
        waiting=rows,
        lease=sql.bare(Role.LEASE),
        claimed=also([*claimed, *shape.taking]),
        returned=reading.select(),
    )


class TransactionalLease(Lease):
    """The lease strategy of a queue whose deliveries hold their connection."""

    one_transaction: ClassVar[bool] = False
    by_session: ClassVar[bool] = False

    def turn(self, connection: Connection, turn: Turn) -> Turned:
        if not (isinstance(connection, Transaction) and connection.open):
            return super().turn(connection, turn)
        settled = self._acknowledge(connection, turn)
        if not turn.limit or connection.closed:
            return settled
        try:
            claim = Turn(limit=turn.limit, now=turn.now, pass_over=turn.pass_over)
            claims = super().turn(connection, claim).claims
        except Exception as error:  # noqa: BLE001 - the settlement stands
            return Turned(lost=settled.lost, gone=settled.gone, failed=error)
        return Turned(claims=claims, lost=settled.lost, gone=settled.gone)

    def _acknowledge(self, connection: Transaction, turn: Turn) -> Turned:
        calls, settled = self._settling.calls(turn, self._parameters.values(turn.now))
        late = changed_nothing(settled, connection.settle_within(calls))
        gone = [claim for claim in late if not connection.ask_within([Call(self._present, {"id": claim.id})])[0]]
        lost = [claim for claim in late if claim not in gone]
        if lost:
            connection.roll_back()
        else:
            connection.commit()
        return Turned(lost=lost, gone=gone)

    def reclaim(self, connection: Transaction, claim: Claim) -> bool:
        """The lease outlives a transaction that failed."""
        connection.roll_back()
        return not connection.closed

    def take_over(self, connection: Transaction, claim: Claim) -> bool:
        """The lease is no connection's, and its token shows who holds the row."""
        return not connection.closed

    def let_go(self, connection: Transaction, claim: Claim) -> None:
        """Nothing but what the handler wrote: the lease ends by itself."""
        connection.roll_back()
