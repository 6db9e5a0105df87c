"""Lease: the claim writes an expiry into the row and commits; that expiry is the token of ownership.

The claim reads *now* once: due rows, ended leases and the new expiry all start from that instant. A settlement
takes effect only while the row still holds the token, so whoever comes late changes nothing and is told. No
transaction and no connection is held while the handler runs.

Lease for transactional handlers: each delivery holds a connection as well, for the transaction that settles it.

The claim commits by itself, as for every lease, so that a crash counts as an attempt. The acknowledgement takes effect
only while the row holds the token; else what the handler wrote is rolled back, and the lease was lost.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar

import attrs

from sqlqueue.clock import round_up
from sqlqueue.dialect import Connection, Row
from sqlqueue.outcome import Move, Settlement
from sqlqueue.queue_sql import QueueSQL, also
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import Call, Statement
from sqlqueue.statements import Settlements, by_lease, present, unfinished
from sqlqueue.strategies.claim import NOBODY, Ahead, Claim, PassOver, Turned
from sqlqueue.strategies.dead_letter import DeadLetters
from sqlqueue.strategies.due import due_reader
from sqlqueue.strategies.fifo import Fifo
from sqlqueue.strategies.order import unleased, unless_passed_over, waiting
from sqlqueue.strategies.plan import Parameters, Reading, count
from sqlqueue.strategies.scan import SWEEP_AFTER, InOrder, Scan
from sqlqueue.strategies.settle import Calls, Settling, changed_nothing, missing
from sqlqueue.strategies.transaction import Transaction

# Rows are locked first, in claim order and passing over those that others have locked, and then updated: a bare
# `IN (SELECT … LIMIT …)` may be evaluated again and claim more than its limit. Two limits: the literal one lets the
# server plan once for a short range of the index (a bound limit is taken for a tenth of the table, so that the
# statement would be planned anew each time: measured, a third of a turn); the bound one says how many.
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

# An extension moves the token forward; whoever settles takes the delivery out of the keeper's hands first. It passes
# over rows that are locked, such as by a handler's transaction: waiting for one, it would let all others' leases end.
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


@attrs.frozen(kw_only=True)
class Shape:
    """What the statements of a queue of a kind of its own say.

    `settlements`: what settles its rows. `free`: further conditions for a row in nobody's hands. `taking`: what its
    claim assigns beside the rest. `moments`: values of these that are made of *now*.
    """

    settlements: Settlements
    free: Sequence[str] = ()
    taking: Sequence[str] = ()
    moments: Mapping[str, Callable[[datetime], Any]] = attrs.field(factory=dict)


def _take(
    sql: QueueSQL, reading: Reading, counted: str | None, taking: Sequence[str], name: str, rows: str
) -> Statement:
    claimed = sql.assignments("claim", but=Role.LEASE, values={"counted": counted or ""})
    return sql.statement(
        name,
        CLAIM,
        width=reading.width,
        waiting=rows,
        lease=sql.bare(Role.LEASE),
        claimed=also([*claimed, *taking]),
        returned=reading.select(),
    )


class Lease:
    """The lease strategy of one queue.

    `columns` are what the handler reads of a row, `seconds` how long a lease lasts, `most` the most rows that one
    claim takes, `cap` the attempts after which a row is spent (None: no cap), `precision` the decimal digits of
    a second that the lease column keeps (None: all), `by_key` whether claims pass keys over,
    `leaving` how rows become dead letters (None: they do not), `shape` what a queue of a kind of its own says.
    """

    def __init__(
        self,
        sql: QueueSQL,
        *,
        columns: Sequence[ColumnSpec],
        seconds: float,
        most: int,
        cap: int | None = None,
        group: str | None = None,
        precision: int | None = None,
        by_key: bool = False,
        leaving: DeadLetters | None = None,
        shape: Shape | None = None,
    ) -> None:
        spec, lease = sql.spec, sql.spec.role(Role.LEASE)
        assert lease is not None
        shape = shape or Shape(settlements=by_lease(sql))
        self._lease = timedelta(seconds=seconds)
        self._precision, self._group = precision, group
        self._by_id = not spec.has(Role.RETRY_AFTER)
        self._reading = Reading(sql, columns)
        counted = count(sql, capped=cap is not None, cleared=CLEARED)
        free = [unleased(sql), *([unless_passed_over(sql)] if by_key else []), *shape.free]
        take = partial(_take, sql, self._reading, counted, shape.taking)
        name = "claim by lease"
        self._scan: Scan = (
            Fifo(sql, self._reading, take, name, most=most, free=free, own_shown=False)
            if spec.line
            else InOrder(
                sql, self._reading, name=name, rows=partial(waiting, sql, most), take=take, free=free, by_key=by_key
            )
        )
        self._settling = Settling(sql, shape.settlements, cap=cap, precision=precision, leaving=leaving)
        self._binding = Parameters(sql, group=group, cap=cap, moments=shape.moments)
        held, skip = {"id": spec.id, "token": lease}, sql.dialect.skip_locked
        extended = ", ".join(sql.assignments("extend"))
        self._extend = sql.settlement("extend", EXTEND, held, extended=extended, skip_locked=skip)
        self._still = sql.settlement("is it still held", STILL, held)
        self._present = present(sql)
        self._unfinished = unfinished(sql)
        self._encode_lease = sql.encoder(Role.LEASE)
        self._read_ahead = due_reader(sql)

    @property
    def claim(self) -> Statement:
        return self._scan.claim

    def statements(self) -> Sequence[Statement]:
        own = (self._extend, self._still, self._present, self._unfinished)
        return [*self._scan.statements(), *own, *self._settling.statements()]

    def turn(
        self,
        connection: Connection,
        settlements: Sequence[tuple[Claim, Settlement]],
        limit: int,
        now: datetime,
        pass_over: PassOver = NOBODY,
    ) -> Turned:
        values = self._binding.values(now, pass_over)
        settling = self._settling.calls(settlements, values, now)
        self._put_behind(settlements, now)
        calls = [call for call, _ in settling]
        if not limit:
            results = connection.run(calls) if calls else []
            return self._told(connection, Turned(), settling, results)
        expires = round_up(now + self._lease, self._precision)
        token = self._encode_lease(expires)
        values["expires"] = token
        look = self._scan.look(values, limit, now)
        results = connection.run([*calls, *look.calls], durable=bool(calls))
        rows: list[Row] = results[-1]
        further = self._scan.further(look, results[len(calls) :])
        while further is not None:
            look = further
            found = connection.run(look.calls, durable=False)
            rows = [*rows, *found[-1]]
            further = self._scan.further(look, found)
        claims = self._reading.claims(self._scan.claimed(rows, look, now), token, expires)
        return self._told(connection, Turned(claims=claims), settling, results)

    def _put_behind(self, settlements: Sequence[tuple[Claim, Settlement]], now: datetime) -> None:
        """In the order of ids alone, rows that come back at once would be claimed before those behind them."""
        for claim, settlement in settlements if self._by_id else ():
            due = settlement.due
            if settlement.move is Move.RETRY and (due is None or due < now + SWEEP_AFTER):
                self._scan.again(claim)

    def _told(
        self,
        connection: Connection,
        turned: Turned,
        settling: Calls,
        results: Sequence[Sequence[Row]],
    ) -> Turned:
        """The turn, with those whose settlement changed nothing."""
        late = changed_nothing(settling, results)
        if not late:
            return turned
        gone = [claim for claim in late if not connection.run([Call(self._present, {"id": claim.id})])[0]]
        return Turned(claims=turned.claims, lost=[claim for claim in late if claim not in gone], gone=gone)

    def extend(self, connection: Connection, claims: Sequence[Claim], now: datetime) -> Sequence[Claim]:
        expires = round_up(now + self._lease, self._precision)
        token = self._encode_lease(expires)
        given = {"id": [claim.id for claim in claims], "token": [claim.token for claim in claims], "expires": token}
        (rows,) = connection.run([Call(self._extend, given)])
        missed = missing(claims, rows)
        for claim in claims:
            if claim not in missed:
                claim.token, claim.expires = token, expires
        return self._lost(connection, missed)

    def _lost(self, connection: Connection, missed: Sequence[Claim]) -> Sequence[Claim]:
        if not missed:
            return missed
        given = {"id": [claim.id for claim in missed], "token": [claim.token for claim in missed]}
        return missing(missed, connection.run([Call(self._still, given)])[0])

    def look_ahead(self, connection: Connection, now: datetime, pass_over: PassOver = NOBODY, held: int = 0) -> Ahead:
        (rows,) = connection.run([Call(self._scan.ahead, self._binding.values(now, pass_over))])
        return self._read_ahead(rows)

    def unfinished(self, connection: Connection, id: object) -> bool:
        return bool(connection.run([Call(self._unfinished, {"id": id, "group": self._group})])[0])


class TransactionalLease(Lease):
    """The lease strategy of a queue whose deliveries hold their connection."""

    one_transaction: ClassVar[bool] = False
    by_session: ClassVar[bool] = False

    def turn(
        self,
        connection: Connection,
        settlements: Sequence[tuple[Claim, Settlement]],
        limit: int,
        now: datetime,
        pass_over: PassOver = NOBODY,
    ) -> Turned:
        if not (isinstance(connection, Transaction) and connection.open):
            return super().turn(connection, settlements, limit, now, pass_over)
        settled = self._acknowledge(connection, settlements, now)
        if not limit or connection.closed:
            return settled
        try:
            claims = super().turn(connection, (), limit, now, pass_over).claims
        except Exception as error:  # noqa: BLE001 - the settlement stands
            return Turned(lost=settled.lost, gone=settled.gone, failed=error)
        return Turned(claims=claims, lost=settled.lost, gone=settled.gone)

    def _acknowledge(
        self, connection: Transaction, settlements: Sequence[tuple[Claim, Settlement]], now: datetime
    ) -> Turned:
        settling = self._settling.calls(settlements, self._binding.values(now, NOBODY), now)
        results = connection.settle_within([call for call, _ in settling])
        late = changed_nothing(settling, results)
        gone = [claim for claim in late if not connection.ask_within([Call(self._present, {"id": claim.id})])[0]]
        lost = [claim for claim in late if claim not in gone]
        if lost:
            connection.roll_back()
        else:
            connection.commit()
        return Turned(lost=lost, gone=gone)

    def hold_again(self, connection: Transaction, claim: Claim) -> bool:
        """The lease outlives a transaction that failed."""
        connection.roll_back()
        return not connection.closed

    def take_over(self, connection: Transaction, claim: Claim) -> bool:
        """The lease is no connection's, and its token tells who holds the row."""
        return not connection.closed

    def let_go(self, connection: Transaction, claim: Claim) -> None:
        """Nothing but what the handler wrote: the lease ends by itself."""
        connection.roll_back()
