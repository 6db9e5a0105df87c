"""Settle: the settlements of a turn become calls, one for each move that there is among them.

Reclaim: whether a row is still as its claim left it, once what held it was lost.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlqueue.clock import LONGEST_DELAY, DatabaseClock, round_up
from sqlqueue.dialect import Row
from sqlqueue.outcome import Move, Settlement
from sqlqueue.queue_sql import QueueSQL, every
from sqlqueue.roles import Role
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.statements import Settlements
from sqlqueue.strategies.claim import Claim, Turned
from sqlqueue.strategies.dead_letter import DeadLetters

Pair = tuple[Claim, Settlement]

#: Calls that settle, each with the claims that it settles.
Calls = Sequence[tuple[Call, list[Claim]]]

# "At once" is just past this turn's *now*: its own claim takes the rows behind first, so that a row that keeps asking
# cannot starve them.
AT_ONCE = timedelta(microseconds=1)


class Settling:
    """One queue's settlements. `precision`: decimal digits of a second that the lease column keeps (None: all).
    `leaving`: how its rows become dead letters (None: they do not)."""

    def __init__(
        self,
        sql: QueueSQL,
        settlements: Settlements,
        *,
        cap: int | None = None,
        precision: int | None = None,
        leaving: DeadLetters | None = None,
    ) -> None:
        by_lease = sql.spec.has(Role.LEASE)
        hidden_by = Role.LEASE if by_lease and not sql.spec.has(Role.RETRY_AFTER) else Role.RETRY_AFTER
        self._settlements, self._cap, self._precision, self._leaving = settlements, cap, precision, leaving
        self._due_precision = precision if hidden_by is Role.LEASE else None
        self._by_database = isinstance(sql.spec.clock, DatabaseClock)
        self._encode_due = sql.encoder(hidden_by)
        self._encode_lease = sql.encoder(Role.LEASE)

    def statements(self) -> Sequence[Statement]:
        settle = self._settlements
        moves = self._leaving.statements if self._leaving else ()
        stays = (settle.finish, settle.retry, settle.advance, settle.park, settle.release)
        return [*(one for one in stays if one is not None), *moves]

    def calls(
        self, settlements: Sequence[Pair], values: Mapping[str, Any], now: datetime
    ) -> list[tuple[Call, list[Claim]]]:
        """The calls, each with the claims that it settles; a move that writes nothing has none."""
        if self._leaving is None:
            return self._stay(settlements, values, now)
        staying = [pair for pair in settlements if pair[1].move is not Move.DEAD_LETTER]
        calls = self._stay(staying, values, now)
        if len(staying) < len(settlements):
            leaving = [pair for pair in settlements if pair[1].move is Move.DEAD_LETTER]
            calls += self._leave(self._leaving, leaving, values, now)
        return calls

    def _leave(
        self, leaving: DeadLetters, settlements: Sequence[Pair], values: Mapping[str, Any], now: datetime
    ) -> list[tuple[Call, list[Claim]]]:
        """A move of several statements settles with its last one."""
        calls: list[tuple[Call, list[Claim]]] = []
        for pairs in [[pair] for pair in settlements] if leaving.singly else [settlements]:
            bound = {**values, **leaving.values(now)}
            moves = [
                self._call_singly(one, *pairs[0], bound, now) if leaving.singly else self._call(one, pairs, bound, now)
                for one in leaving.statements
            ]
            calls += [(call, []) for call in moves[:-1]]
            calls.append((moves[-1], [claim for claim, _ in pairs]))
        return [*calls, *((call, []) for call in leaving.notify)]

    def _stay(
        self, settlements: Sequence[Pair], values: Mapping[str, Any], now: datetime
    ) -> list[tuple[Call, list[Claim]]]:
        if self._settlements.singly:
            return [
                (self._call_singly(statement, claim, settlement, values, now), [claim])
                for claim, settlement in settlements
                if (statement := self._statement(settlement.move)) is not None
            ]
        by_move: dict[Move, list[Pair]] = {}
        for claim, settlement in settlements:
            by_move.setdefault(settlement.move, []).append((claim, settlement))
        return [
            (self._call(statement, settled, values, now), [claim for claim, _ in settled])
            for move, settled in by_move.items()
            if (statement := self._statement(move)) is not None
        ]

    def _statement(self, move: Move) -> Statement | None:
        settle = self._settlements
        if move is Move.FINISH:
            return settle.finish
        if move is Move.RETRY:
            return settle.retry
        if move is Move.RELEASE:
            return settle.release
        if move is Move.ADVANCE:
            return settle.advance
        assert settle.park is not None, "a queue without an error column parks nothing"
        return settle.park

    def _call(self, statement: Statement, settled: Sequence[Pair], values: Mapping[str, Any], now: datetime) -> Call:
        given = dict(values)
        for name in statement.given:
            value = self._value(name, now)
            given[name] = [value(claim, settlement) for claim, settlement in settled]
        return Call(statement, given)

    def _call_singly(
        self, statement: Statement, claim: Claim, settlement: Settlement, values: Mapping[str, Any], now: datetime
    ) -> Call:
        given = {name: self._value(name, now)(claim, settlement) for name in statement.parameters if name not in values}
        return Call(statement, {**values, **given})

    def _value(self, name: str, now: datetime) -> Callable[[Claim, Settlement], Any]:
        """What the given column of that name holds."""
        return {
            "id": lambda claim, _: claim.id,
            "token": lambda claim, _: claim.token,
            "attempt": lambda claim, settlement: claim.attempt - (not settlement.begun),
            "error": lambda _, settlement: settlement.error,
            "stored": lambda _, settlement: settlement.payload,
            "headers": lambda claim, settlement: self._headers(claim, settlement),
            "due": self._dues(now),
            "seconds": lambda _, settlement: self._seconds(settlement.due, now),
            "until": lambda claim, settlement: self._until(claim, settlement.due, now),
        }[name]

    def _dues(self, now: datetime) -> Callable[[Claim, Settlement], Any]:
        """Rows that go on at once are many, and what they are due by is one."""
        encoded: list[Any] = []

        def due(_: Claim, settlement: Settlement) -> Any:
            if settlement.due is not None:
                return self._due(settlement.due)
            if settlement.move is not Move.ADVANCE:
                return self._due(now + AT_ONCE)
            if not encoded:
                encoded.append(self._due(now))
            return encoded[0]

        return due

    def _due(self, due: datetime) -> Any:
        return self._encode_due(round_up(due, self._due_precision))

    def _headers(self, claim: Claim, settlement: Settlement) -> Any:
        assert self._leaving is not None
        return self._leaving.headers(claim, settlement)

    def _seconds(self, due: datetime | None, now: datetime) -> float:
        """The same on the database's clock: from its *now*."""
        if due is None:
            return AT_ONCE.total_seconds()
        return min(max(0.0, (due - now).total_seconds()), LONGEST_DELAY)

    def _until(self, claim: Claim, due: datetime | None, now: datetime) -> Any:
        if due is None and self._cap is not None and claim.attempt is not None and claim.attempt > self._cap:
            due = now  # an ended lease: a spent row without any is one whose error was cleared
        return None if due is None else self._encode_lease(round_up(due, self._precision))


def missing(claims: Sequence[Claim], rows: Sequence[Row]) -> list[Claim]:
    """Those of the claims whose ids a settlement did not return: it changed nothing."""
    if len(rows) == len(claims):
        return []
    found = {row[0] for row in rows}
    return [claim for claim in claims if claim.id not in found]


def changed_nothing(settling: Calls, results: Sequence[Sequence[Row]]) -> list[Claim]:
    """The claims whose settlements changed nothing; `results` begins with what those returned."""
    return [claim for (_, claims), rows in zip(settling, results, strict=False) for claim in missing(claims, rows)]


def turned_without_loss(
    claims: Sequence[Claim],
    settling: Calls,
    results: Sequence[Sequence[Row]],
    failed: BaseException | None = None,
) -> Turned:
    """The turn of a connection that holds the settled rows, with those that were not there any more: whoever holds the
    lock loses it to nobody."""
    return Turned(claims=claims, gone=changed_nothing(settling, results), failed=failed)


# Unless somebody has worked the row off, or had it meanwhile and counted that.
RECLAIM = """
SELECT {id} FROM {table}
WHERE {id} = :id AND {as_it_was}
{skip_locked}
"""

AS_COUNTED = "{counted} = :attempt"


def reclaim(sql: QueueSQL, name: str, *, counted: str | None = None, skip_locked: str = "") -> Statement:
    """The statement that finds the row as it was. `counted`: the attempts of its claim; what the row shows by itself,
    unless given. `skip_locked` locks it."""
    counted = counted or (sql.column(Role.ATTEMPT) if sql.spec.has(Role.ATTEMPT) else None)
    as_it_was = [*sql.unfinished(), *([fill(AS_COUNTED, {"counted": counted})] if counted else [])]
    return sql.statement(
        name, RECLAIM, width=1, writes=bool(skip_locked), as_it_was=every(as_it_was), skip_locked=skip_locked
    )
