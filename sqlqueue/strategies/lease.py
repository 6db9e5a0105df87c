"""Lease: the claim writes an expiry into the row and commits; that expiry is the token of ownership.

The claim reads *now* once: due rows, ended leases and the new expiry all start from that instant. A settlement
takes effect only while the row still holds the token, so whoever comes late changes nothing and is told. No
transaction and no connection is held while the handler runs.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import attrs

from sqlqueue.column import Role
from sqlqueue.dialect import Connection, Converter, Row
from sqlqueue.moments import readable, round_up
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.statements import Settlements, present, unfinished
from sqlqueue.strategies.ahead import look_ahead
from sqlqueue.strategies.base import NOBODY, Ahead, Claim, Move, PassOver, Settlement, Turned
from sqlqueue.strategies.bookmark import SWEEP_AFTER, Bookmark
from sqlqueue.strategies.order import in_order, positions, sort_key
from sqlqueue.strategies.waiting import onward, unleased, unless_passed_over, waiting
from sqlqueue.words import Words, also

# Rows are locked first, in claim order and passing over those that others have locked, and then updated: a bare
# `IN (SELECT … LIMIT …)` may be evaluated again and claim more than its limit. Two limits: the literal one lets the
# server plan once for a short range of the index (a bound limit is taken for a tenth of the table, so that the
# statement would be planned anew each time: measured, a third of a turn); the bound one says how many.
CLAIM = """
WITH due AS MATERIALIZED (
    SELECT id FROM (
        {waiting}
    ) AS waiting
    LIMIT :limit
)
UPDATE {table}
SET {lease} = :expires{counted}{running}
FROM due
WHERE {id} = due.id
RETURNING {returned}
"""

# An extension moves the token forward; whoever settles takes the delivery out of the keeper's hands first.
EXTEND = """
UPDATE {table}
SET {lease} = :expires
{from_given}
WHERE {id} = {given_id} {fence}
RETURNING {id}
"""

# A row whose error somebody cleared has spent its attempts and is held by nobody: it starts a fresh count. (A row
# whose last worker crashed has spent them as well, but still shows that worker's lease.)
COUNT = "COALESCE({attempt}, 0) + 1"
COUNT_AFRESH = "CASE WHEN {lease} IS NULL AND {attempt} >= :cap THEN 1 ELSE COALESCE({attempt}, 0) + 1 END"


def _claim(
    words: Words, returned: Sequence[ColumnSpec], most: int, *, capped: bool, goes_on: bool, by_key: bool
) -> Statement:
    counted = []
    if words.spec.has(Role.ATTEMPT):
        count = COUNT_AFRESH if capped and words.spec.has(Role.ERROR) else COUNT
        text = fill(count, {"attempt": words.column(Role.ATTEMPT), "lease": words.column(Role.LEASE)})
        counted = [f"{words.bare(Role.ATTEMPT)} = {text}"]
    conditions = [
        unleased(words),
        *([unless_passed_over(words)] if by_key else []),
        *([onward(words)] if goes_on else []),
    ]
    running = [f"{words.bare(Role.RUNNING)} = TRUE"] if words.spec.has(Role.RUNNING) else []
    return words.statement(
        "claim by lease, onward" if goes_on else "claim by lease",
        CLAIM,
        width=len(returned),
        waiting=waiting(words, most, *conditions),
        lease=words.bare(Role.LEASE),
        counted=also(counted),
        running=also(running),
        returned=", ".join(words.dialect.read(column, words.qualified(column)) for column in returned),
    )


class Lease:
    """The lease strategy of one queue.

    `columns` are what the handler reads of a row, `seconds` how long a lease lasts, `most` the most rows that one
    claim takes, `cap` the attempts after which a row is spent (None: no cap), `precision` the decimal digits of
    a second that the lease column keeps (None: all), `by_key` whether claims pass keys over.
    """

    holds_connection = False

    def __init__(
        self,
        words: Words,
        *,
        columns: Sequence[ColumnSpec],
        seconds: float,
        most: int,
        cap: int | None = None,
        group: str | None = None,
        precision: int | None = None,
        by_key: bool = False,
    ) -> None:
        spec = words.spec
        needed = [spec.id, *(c for r in (Role.ATTEMPT, Role.PRIORITY, Role.RETRY_AFTER) if (c := spec.role(r)))]
        self.returned = (*columns, *(column for column in needed if column not in columns))
        self._width = len(columns)
        places = positions(self.returned, Role.ID, Role.ATTEMPT)
        self._id_at, self._attempt_at = places[Role.ID], places.get(Role.ATTEMPT)
        self._lease = timedelta(seconds=seconds)
        self._precision = precision
        self._due_precision = None if spec.has(Role.RETRY_AFTER) else precision
        self._cap, self._group = cap, group
        self.claim = _claim(words, self.returned, most, capped=cap is not None, goes_on=False, by_key=by_key)
        self._onward: Statement | None = None
        dead_rows = words.dialect.capabilities.dead_rows
        if not spec.has(Role.PRIORITY) and (dead_rows or not spec.has(Role.RETRY_AFTER)):
            self._onward = _claim(words, self.returned, most, capped=cap is not None, goes_on=True, by_key=by_key)
        self._bookmark = Bookmark(backlog=dead_rows)
        self._due_at = positions(self.returned, Role.RETRY_AFTER).get(Role.RETRY_AFTER)
        self._settle = Settlements.by_lease(words)
        lease = spec.role(Role.LEASE)
        assert lease is not None
        self._extend = words.settlement("extend", EXTEND, {"id": spec.id, "token": lease}, lease=words.bare(Role.LEASE))
        self._ahead = look_ahead(words, free=unleased(words))
        self._present = present(words)
        self._unfinished = unfinished(words)
        self._encode_list: Converter = words.dialect.list_encoder() or list
        self._encode_lease = words.encoder(Role.LEASE)
        self._encode_due = words.encoder(Role.RETRY_AFTER if spec.has(Role.RETRY_AFTER) else Role.LEASE)
        self._decode_ahead = words.decoder(Role.RETRY_AFTER if spec.has(Role.RETRY_AFTER) else Role.LEASE)
        self._nows = _now_encoders(words)
        self._order = sort_key(words, self.returned)

    def statements(self) -> Sequence[Statement]:
        own = (self.claim, self._onward, self._extend, self._ahead, self._present, self._unfinished)
        settling = attrs.astuple(self._settle, recurse=False)
        return [one for one in (*own, *settling) if one is not None]

    def turn(
        self,
        connection: Connection,
        settlements: Sequence[tuple[Claim, Settlement]],
        limit: int,
        now: datetime,
        pass_over: PassOver = NOBODY,
    ) -> Turned:
        values = self._moments(now)
        values["passed_keys"], values["passed_ids"] = (
            self._encode_list(pass_over.keys),
            self._encode_list(pass_over.ids),
        )
        settling = self._calls(settlements, values, now)
        calls = [call for call, _ in settling]
        expires = self._expiry(now)
        position = None
        if limit:
            position = None if self._onward is None else self._bookmark.position(now)
            calls.append(self._claim_call(values, expires, limit, position))
        if not calls:
            return Turned()
        results = connection.run(calls, durable=bool(settlements))
        rows: Sequence[Row] = ()
        if limit:
            rows = results.pop()
            if position is not None and len(rows) < limit:
                # The end of the queue: what is left stands before the bookmark.
                self._bookmark.at_end()
                (more,) = connection.run([self._claim_call(values, expires, limit - len(rows), None)], durable=False)
                rows, position = [*rows, *more], None
            rows = self._in_order(rows, limit, position is None, now)
        claims = self._claims(rows, expires)
        late = [claim for (_, held), done in zip(settling, results, strict=True) for claim in _missing(held, done)]
        if not late:
            return Turned(claims=claims)
        gone = [claim for claim in late if not connection.run([Call(self._present, {"id": claim.id})])[0]]
        return Turned(claims=claims, lost=[claim for claim in late if claim not in gone], gone=gone)

    def _claim_call(
        self, values: dict[str, Any], expires: datetime, limit: int, position: tuple[Any, ...] | None
    ) -> Call:
        values = {**values, "expires": self._encode_lease(expires), "limit": limit}
        if position is None or self._onward is None:
            return Call(self.claim, values)
        values["from_retry_after"], values["from_id"] = position
        return Call(self._onward, values)

    def _in_order(self, rows: Sequence[Row], limit: int, swept: bool, now: datetime) -> Sequence[Row]:
        """The claimed rows in claim order; the bookmark is put to the first."""
        rows = in_order(rows, self._order)
        first = None
        if rows:
            first = (None if self._due_at is None else rows[0][self._due_at], rows[0][self._id_at])
        self._bookmark.claimed(first, full=len(rows) >= limit, swept=swept, now=now)
        return rows

    def extend(self, connection: Connection, claims: Sequence[Claim], now: datetime) -> Sequence[Claim]:
        expires = self._expiry(now)
        token = self._encode_lease(expires)
        given = {"id": [claim.id for claim in claims], "token": [claim.token for claim in claims], "expires": token}
        (rows,) = connection.run([Call(self._extend, given)])
        lost = _missing(claims, rows)
        for claim in claims:
            if claim not in lost:
                claim.token, claim.expires = token, expires
        return lost

    def look_ahead(self, connection: Connection, now: datetime) -> Ahead:
        ((row,),) = connection.run([Call(self._ahead, self._moments(now))])
        return Ahead(due=readable(self._decode_ahead, row[0]), hidden=bool(row[1]), passed_over=bool(row[2]))

    def unfinished(self, connection: Connection, id: Any) -> bool:
        return bool(connection.run([Call(self._unfinished, {"id": id, "group": self._group})])[0])

    def _moments(self, now: datetime) -> dict[str, Any]:
        values: dict[str, Any] = {"group": self._group, "cap": self._cap}
        for name, encode in self._nows:
            values[name] = encode(now)
        return values

    def _expiry(self, now: datetime) -> datetime:
        return round_up(now + self._lease, self._precision)

    def _calls(
        self, settlements: Sequence[tuple[Claim, Settlement]], values: dict[str, Any], now: datetime
    ) -> list[tuple[Call, list[Claim]]]:
        by_move: dict[Move, list[tuple[Claim, Settlement]]] = {}
        for claim, settlement in settlements:
            by_move.setdefault(settlement.move, []).append((claim, settlement))
        return [
            (self._call(move, settled, values, now), [claim for claim, _ in settled])
            for move, settled in by_move.items()
        ]

    def _call(self, move: Move, settled: list[tuple[Claim, Settlement]], values: dict[str, Any], now: datetime) -> Call:
        given: dict[str, Any] = {
            **values,
            "id": [claim.id for claim, _ in settled],
            "token": [claim.token for claim, _ in settled],
        }
        statement: Statement | None
        if move is Move.FINISH:
            statement = self._settle.finish
        elif move is Move.RETRY:
            statement = self._settle.retry
            given["due"] = [self._due(settlement.due, now) for _, settlement in settled]
            for claim, settlement in settled:
                if self._due_at is None and (settlement.due is None or settlement.due < now + SWEEP_AFTER):
                    self._bookmark.again((None, claim.id))
        elif move is Move.PARK:
            statement = self._settle.park
            given["error"] = [settlement.error for _, settlement in settled]
        else:
            statement = self._settle.release
            given["until"] = [self._until(claim, settlement.due, now) for claim, settlement in settled]
        assert statement is not None, move
        return Call(statement, given)

    def _due(self, due: datetime | None, now: datetime) -> Any:
        # "At once" is just past this turn's *now*: its own claim takes the rows behind first, so that a row that
        # keeps asking cannot starve them.
        due = now + timedelta(microseconds=1) if due is None else due
        return self._encode_due(round_up(due, self._due_precision))

    def _until(self, claim: Claim, due: datetime | None, now: datetime) -> Any:
        if due is None and self._cap is not None and claim.attempt is not None and claim.attempt > self._cap:
            due = now  # an ended lease: a spent row without any is one whose error was cleared
        return None if due is None else self._encode_lease(round_up(due, self._precision))

    def _claims(self, rows: Sequence[Row], expires: datetime) -> list[Claim]:
        token = self._encode_lease(expires) if rows else None
        id_at, attempt_at, width = self._id_at, self._attempt_at, self._width
        return [
            Claim(row[id_at], token, expires, None if attempt_at is None else int(row[attempt_at]), row[:width])
            for row in rows
        ]


def _now_encoders(words: Words) -> list[tuple[str, Converter]]:
    """The names under which statements read *now*, and how each is encoded."""
    moments = (Role.LEASE, Role.RETRY_AFTER, Role.PROCESSED_AT)
    return [(f"now_{role.value}", words.now_encoder(role)) for role in moments if words.spec.has(role)]


def _missing(claims: Sequence[Claim], rows: Sequence[Row]) -> list[Claim]:
    if len(rows) == len(claims):
        return []
    found = {row[0] for row in rows}
    return [claim for claim in claims if claim.id not in found]
