"""The settlements of a turn become calls, one for each move that there is among them; and what reclaims a row whose
settlement failed."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter
from typing import Any

import attrs

from sqlqueue.clock import LONGEST_DELAY, round_up
from sqlqueue.dialect import Row
from sqlqueue.outcome import Move, Settlement
from sqlqueue.queue_sql import QueueSQL, every
from sqlqueue.roles import Role
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.statements import Settlements
from sqlqueue.strategies.claim import Claim, Turn
from sqlqueue.strategies.plan import QueuePlan

# "At once" is just past this turn's *now*: its own claim takes the rows behind first, so that a row that keeps asking
# cannot starve them.
AT_ONCE = timedelta(microseconds=1)

ID, TOKEN = attrgetter("id"), attrgetter("token")


@attrs.define
class SameMove:
    """Claims, and how each of them is settled, all by one move."""

    claims: list[Claim] = attrs.field(factory=list)
    settlements: list[Settlement] = attrs.field(factory=list)

    def each(self) -> list["SameMove"]:
        """The same, one by one."""
        return [SameMove([claim], [one]) for claim, one in zip(self.claims, self.settlements, strict=True)]


#: Makes the values of one parameter, one for each claim, by the turn's *now*.
Values = Callable[[SameMove, datetime], Sequence[Any]]


@attrs.frozen
class Write:
    """A statement that settles rows. `given`: what it takes of each row, beside the id and the token."""

    statement: Statement
    given: Sequence[tuple[str, Values]]


class Settling:
    """One queue's settlements."""

    def __init__(self, plan: QueuePlan, settlements: Settlements) -> None:
        sql = plan.sql
        hidden_by = Role.RETRY_AFTER if sql.spec.has(Role.RETRY_AFTER) else Role.LEASE
        self._cap, self._precision, self._dead_letters = plan.cap, plan.precision, plan.dead_letters
        self._due_precision = plan.precision if hidden_by is Role.LEASE else None
        self._encode_due, self._encode_lease = sql.encoder(hidden_by), sql.encoder(Role.LEASE)
        self._singly = settlements.singly
        statements = {
            Move.FINISH: settlements.finish,
            Move.RETRY: settlements.retry,
            Move.ADVANCE: settlements.advance,
            Move.PARK: settlements.park,
            Move.RELEASE: settlements.release,
        }
        self._writes = {move: self._write(one) for move, one in statements.items() if one is not None}
        self._moves = [self._write(one) for one in plan.dead_letters.statements] if plan.dead_letters else []

    def statements(self) -> Sequence[Statement]:
        return [write.statement for write in (*self._writes.values(), *self._moves)]

    def calls(self, turn: Turn, values: Mapping[str, Any]) -> tuple[list[Call], list[Sequence[Claim]]]:
        """The calls that settle, and the claims that each of them settles. `values`: what every statement may name."""
        calls: list[Call] = []
        settled: list[Sequence[Claim]] = []
        by_move: dict[Move, SameMove] = {}
        for claim, settlement in turn.settlements:
            same = by_move.get(settlement.move)
            if same is None:
                same = by_move[settlement.move] = SameMove()
            same.claims.append(claim)
            same.settlements.append(settlement)
        dead = None if self._dead_letters is None else by_move.pop(Move.DEAD_LETTER, None)
        for move, same in by_move.items():
            write = self._writes.get(move)
            if write is None:
                assert move in (Move.RETRY, Move.RELEASE), f"the queue has no place for {move}"  # these write nothing
                continue
            for some in same.each() if self._singly and len(same.claims) > 1 else (same,):
                calls.append(self._call(write, some, values, turn.now, singly=self._singly))
                settled.append(some.claims)
        if dead is not None:
            self._move(dead, values, turn.now, calls, settled)
        return calls, settled

    def _call(self, write: Write, same: SameMove, values: Mapping[str, Any], now: datetime, *, singly: bool) -> Call:
        bound = dict(values)
        if singly:
            bound["id"], bound["token"] = same.claims[0].id, same.claims[0].token
            for name, given in write.given:
                (bound[name],) = given(same, now)
        else:
            bound["id"], bound["token"] = list(map(ID, same.claims)), list(map(TOKEN, same.claims))
            for name, given in write.given:
                bound[name] = given(same, now)
        return Call(write.statement, bound)

    def _move(
        self,
        same: SameMove,
        values: Mapping[str, Any],
        now: datetime,
        calls: list[Call],
        settled: list[Sequence[Claim]],
    ) -> None:
        """Add what moves rows to their dead letters. A move of several statements settles with its last one."""
        assert self._dead_letters is not None
        singly = self._dead_letters.singly
        for some in same.each() if singly else [same]:
            bound = {**values, **self._dead_letters.values(now)}
            calls += [self._call(write, some, bound, now, singly=singly) for write in self._moves]
            settled += [*[()] * (len(self._moves) - 1), some.claims]
        calls += self._dead_letters.notify

    def _write(self, statement: Statement) -> Write:
        makers: Mapping[str, Values] = {
            "attempt": lambda same, _: [
                claim.attempt - (not one.begun)  # type: ignore[operator]  # it is named where rows count
                for claim, one in zip(same.claims, same.settlements, strict=True)
            ],
            "error": lambda same, _: [one.error for one in same.settlements],
            "stored": lambda same, _: [one.payload for one in same.settlements],
            "headers": self._headers,
            "due": self._dues,
            "seconds": self._seconds,
            "until": self._untils,
        }
        return Write(statement, [(name, makers[name]) for name in statement.parameters if name in makers])

    def _headers(self, same: SameMove, now: datetime) -> Sequence[Any]:
        assert self._dead_letters is not None
        return list(map(self._dead_letters.headers, same.claims, same.settlements))

    def _dues(self, same: SameMove, now: datetime) -> Sequence[Any]:
        """Rows that are due at once are many, and what they are due by is one."""
        advanced = same.settlements[0].move is Move.ADVANCE
        at_once = self._encode_due(round_up(now if advanced else now + AT_ONCE, self._due_precision))
        return [
            at_once if one.due is None else self._encode_due(round_up(one.due, self._due_precision))
            for one in same.settlements
        ]

    def _seconds(self, same: SameMove, now: datetime) -> Sequence[Any]:
        """The same on the database's clock: from its *now*."""
        dues = [now + AT_ONCE if one.due is None else one.due for one in same.settlements]
        return [min(max(0.0, (due - now).total_seconds()), LONGEST_DELAY) for due in dues]

    def _untils(self, same: SameMove, now: datetime) -> Sequence[Any]:
        """Until when a released row stays hidden. An ended lease shows that a row is spent: one without any is a row
        whose error was cleared."""
        dues = [
            now if one.due is None and self._cap is not None and (claim.attempt or 0) > self._cap else one.due
            for claim, one in zip(same.claims, same.settlements, strict=True)
        ]
        return [None if due is None else self._encode_lease(round_up(due, self._precision)) for due in dues]


def missing(claims: Sequence[Claim], rows: Sequence[Row]) -> list[Claim]:
    """Those of the claims whose ids a settlement did not return: it changed nothing."""
    if len(rows) == len(claims):
        return []
    found = {row[0] for row in rows}
    return [claim for claim in claims if claim.id not in found]


def changed_nothing(settled: Sequence[Sequence[Claim]], results: Sequence[Sequence[Row]]) -> Sequence[Claim]:
    """The claims whose settlements changed nothing; `results` begins with what those returned."""
    late: list[Claim] = []
    for claims, rows in zip(settled, results, strict=False):
        if len(rows) != len(claims):
            late += missing(claims, rows)
    return late


# Unless somebody has worked the row off, or had it meanwhile and counted that.
RECLAIM = """
SELECT {id} FROM {table}
WHERE {id} = :id AND {as_it_was}
{skip_locked}
"""

AS_COUNTED = "{counted} = :attempt"


def reclaim(sql: QueueSQL, name: str, *, counted: str | None = None, skip_locked: str = "") -> Statement:
    """The statement that finds the row as its claim left it. `counted`: the attempts of its claim; what the row shows
    by itself, unless given. `skip_locked` locks it."""
    counted = counted or (sql.column(Role.ATTEMPT) if sql.spec.has(Role.ATTEMPT) else None)
    as_it_was = [*sql.unfinished(), *([fill(AS_COUNTED, {"counted": counted})] if counted else [])]
    return sql.statement(
        name, RECLAIM, width=1, writes=bool(skip_locked), as_it_was=every(as_it_was), skip_locked=skip_locked
    )
