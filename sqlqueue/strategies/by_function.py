"""Advisory locks that others keep: the dialect's own, where sessions have none, or functions of the user's.

What they hold the database cannot see, so a claim reads candidates with their keys, tries them one by one and reads on,
further each time and without the keys that it has tried, until it has a row: held keys hide nobody. The first look
leaves nothing out, which makes it the cheapest.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, repeat
from threading import Lock
from typing import Any, ClassVar

from sqlqueue.column import Role
from sqlqueue.connection import Connection
from sqlqueue.dialect import Row
from sqlqueue.locks import LockFunction
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.statements import by_advisory_lock, unfinished
from sqlqueue.strategies.again import again
from sqlqueue.strategies.ahead import look_ahead, reader
from sqlqueue.strategies.base import NOBODY, RELEASE, Ahead, Claim, Move, PassOver, Settlement, Turned
from sqlqueue.strategies.binding import Binding
from sqlqueue.strategies.bookmark import BETWEEN_SWEEPS
from sqlqueue.strategies.held_keys import HeldKeys
from sqlqueue.strategies.leaving import Leaving
from sqlqueue.strategies.reading import Reading
from sqlqueue.strategies.settling import Calls, Settling, changed_nothing
from sqlqueue.strategies.taking import take
from sqlqueue.strategies.waiting import found_in_one_walk, in_key_order, waiting, waiting_rows
from sqlqueue.words import Words

log = logging.getLogger("sqlqueue")

# Where the claim order is no one walk along the index, the rows are found first, and their keys made for those alone.
JOINED = """
SELECT {select} FROM {table}
JOIN (
    {waiting}
) AS _waiting ON {id} = _waiting.id
ORDER BY {claim_order}
"""

#: Candidates of the first look: as many as this consumer may hold, and as many behind them; at least so many.
LEAST = 4

#: Candidates of each further look. Each is a statement of its own, whose plan is made for so many: for 1,024 at most
#: the server joined them by reading the whole table.
WINDOWS = (64, 256, 1024)

#: How a key is given to a statement.
KEY = ColumnSpec(field="lock_key", type=str)


def _find(words: Words, key: str, most: int, name: str, conditions: Sequence[str]) -> Statement:
    select = f"{words.column(Role.ID)}, {key} AS key"
    if found_in_one_walk(words):
        template = waiting_rows(words, select, most, conditions, locked=False)
        return words.statement(name, template, width=2, writes=False)
    rows, order = waiting(words, most, conditions, locked=False), ", ".join(words.order())
    return words.statement(name, JOINED, width=2, writes=False, select=select, waiting=rows, claim_order=order)


class Underway:
    """A turn: what it settles, which goes with the first rows that are taken or by itself, and what it has claimed."""

    def __init__(self, connection: Connection, values: Mapping[str, Any], calls: Calls, limit: int) -> None:
        self.connection, self.values, self.calls, self.limit = connection, values, calls, limit
        self.gone: list[Claim] = []
        self.claims: list[Claim] = []

    @property
    def wanted(self) -> int:
        return self.limit - len(self.claims)

    def run(self, takes: Sequence[Call] = ()) -> Sequence[Sequence[Row]]:
        """Settle what is not settled yet, and take; the rows that each of `takes` returned."""
        calls = [*(call for call, _ in self.calls), *takes]
        if not calls:
            return ()
        results = self.connection.run(calls, durable=bool(self.calls))
        self.gone += changed_nothing(self.calls, results)
        self.calls = ()
        return results[len(calls) - len(takes) :]


class ByFunction:
    """The advisory-lock strategy of one queue, with `lock` and `unlock` as functions of the driver's connection and a
    key.

    `columns` are what the handler reads of a row, `held` how many rows this consumer holds at once, `cap` the attempts
    after which a row is spent (None: no cap), `by_key` whether claims pass keys over, `leaving` how rows become dead
    letters (None: they do not). A claim's token is its key.
    """

    one_transaction: ClassVar[bool] = False
    by_session: ClassVar[bool] = False

    def __init__(
        self,
        words: Words,
        *,
        lock: LockFunction,
        unlock: LockFunction,
        columns: Sequence[ColumnSpec],
        held: int = 1,
        cap: int | None = None,
        group: str | None = None,
        by_key: bool = False,
        leaving: Leaving | None = None,
    ) -> None:
        self._keys = HeldKeys(lock, unlock)
        self._reading = Reading(words, columns)
        self._group = group
        key, passed = words.lock_key(), in_key_order(words) if by_key else []
        free = [fill("NOT {held}", {"held": words.dialect.any_of(KEY, key, "tried_keys")}), *passed]
        nearest = min(max(LEAST, 2 * held), WINDOWS[-1])
        self._finds = [(nearest, _find(words, key, nearest, "find by advisory lock", passed))]
        self._finds += [(most, _find(words, key, most, f"find {most} by advisory lock", free)) for most in WINDOWS]
        self._take = words.statement(
            "take by advisory lock",
            "{take}",
            width=self._reading.width,
            take=take(words, self._reading, capped=cap is not None, candidate=":id"),
        )
        self._ahead = look_ahead(words, free=free)
        self._settling = Settling(words, by_advisory_lock(words, capped=cap is not None), cap=cap, leaving=leaving)
        self._binding = Binding(words, group=group, cap=cap, constants=words.lock_texts())
        self._encode_list = words.dialect.list_encoder() or list
        self._unfinished, self._again = unfinished(words), again(words, "find again")
        self._read_ahead = reader(words)
        self._by_id = not words.spec.has(Role.RETRY_AFTER)
        self._behind: set[str] = set()
        self._passing = 0
        self._changing = Lock()

    @property
    def claim(self) -> Statement:
        return self._finds[0][1]

    def statements(self) -> Sequence[Statement]:
        finds = [find for _, find in self._finds]
        return [*finds, self._take, self._ahead, self._again, self._unfinished, *self._settling.statements()]

    def turn(
        self,
        connection: Connection,
        settlements: Sequence[tuple[Claim, Settlement]],
        limit: int,
        now: datetime,
        pass_over: PassOver = NOBODY,
    ) -> Turned:
        """Where the functions lock for a connection, the rows to be settled are those that `connection` serves."""
        values = self._binding.values(now, pass_over)
        turn = Underway(connection, values, self._settling.calls(settlements, values, now), limit)
        self._put_behind(settlements)
        failed: Exception | None = None
        try:
            self._find(turn)
            turn.run()
        except Exception as error:
            if turn.calls or not (settlements or turn.claims):
                raise
            failed = error  # what was to be settled is
        released, refused = self._keys.release_all(connection, [claim.token for claim, _ in settlements])
        failed = failed or refused
        if not released or connection.closed:
            self._close(turn, now)
        elif settlements and failed is None:
            try:
                self._find(turn)  # of the keys that are free now
            except Exception as error:  # noqa: BLE001 - the settlement stands
                failed = error
        # Rows that were claimed go before an error, which the next look meets again.
        return Turned(claims=turn.claims, gone=turn.gone, failed=None if turn.claims else failed)

    def _close(self, turn: Underway, now: datetime) -> None:
        """Nobody knows what its session still holds: the connection is closed, after the rows that were just taken on
        it went back."""
        calls = self._settling.calls([(claim, RELEASE) for claim in turn.claims], turn.values, now)
        if calls and not turn.connection.closed:
            turn.connection.run([call for call, _ in calls])
        self._keys.release_all(turn.connection, [claim.token for claim in turn.claims])
        turn.claims.clear()
        turn.connection.close()

    def _put_behind(self, settlements: Sequence[tuple[Claim, Settlement]]) -> None:
        """In the order of ids alone, rows that come back at once would be claimed before those behind them."""
        if self._by_id:
            with self._changing:  # decided: whose turn it is
                self._behind.update(claim.token for claim, one in settlements if one.move is Move.RETRY)

    def _find(self, turn: Underway) -> None:
        """Claim what the turn still wants, those that came back at once after all others."""
        if not turn.wanted:
            return
        with self._changing:  # decided: whose turn it is; every so often that of those that came back
            self._passing = (self._passing + 1) % (BETWEEN_SWEEPS + 1)
            if not self._passing:
                self._behind.clear()
            behind = set(self._behind)
        self._find_but(turn, behind)
        if behind and turn.wanted:
            self._find_but(turn, set())

    def _find_but(self, turn: Underway, tried: set[str]) -> None:
        """Claim the first rows that can be taken, but for those whose keys were `tried`."""
        bound = turn.values
        for most, find in chain(self._finds, repeat(self._finds[-1])):
            candidates = turn.connection.run([Call(find, bound)])[0]
            untried = iter(candidates)
            while locked := self._hold_some(turn, untried, tried):
                self._taken(turn, locked)
            if not turn.wanted or len(candidates) < most:
                return
            bound = {**turn.values, "tried_keys": self._encode_list([*tried, *self._keys.all()])}

    def _hold_some(self, turn: Underway, candidates: Iterator[Row], tried: set[str]) -> Sequence[Row]:
        """Lock the keys of the next candidates, of as many as are wanted; those that were locked."""
        locked: list[Row] = []
        done = False
        try:
            while len(locked) < turn.wanted:
                candidate = next(candidates, None)
                if candidate is None:
                    break
                key = candidate[1]
                if key not in tried:
                    tried.add(key)
                    if self._keys.hold(turn.connection, key):
                        locked.append(candidate)
            done = True
            return locked
        finally:
            if not done:
                self._keys.let_go(turn.connection, [key for _, key in locked])

    def _taken(self, turn: Underway, locked: Sequence[Row]) -> None:
        """Take the rows whose keys are locked, in one transaction with what is to be settled; let go of what was not
        there any more."""
        missed = locked
        try:
            takes = [Call(self._take, {**turn.values, "id": id}) for id, _ in locked]
            taken = list(zip(locked, turn.run(takes), strict=True))
            missed = [candidate for candidate, rows in taken if not rows]
            for (_, key), rows in taken:
                turn.claims += self._reading.claims(rows, token=key)
        finally:
            self._keys.let_go(turn.connection, [key for _, key in missed])

    def hold_again(self, connection: Connection, claim: Claim) -> bool:
        """The lock outlives a transaction that failed."""
        return not connection.closed

    def take_over(self, connection: Connection, claim: Claim) -> bool:
        """What the functions lock for a connection is locked again for this one. What they keep otherwise is locked
        still; which of the two it is shows only in that nobody else has begun the row."""
        values = {"id": claim.id, "group": self._group, "attempt": claim.attempt}
        find = Call(self._again, values)
        return self._keys.lock_again(connection, claim.token, lambda: bool(connection.run([find])[0]))

    def let_go(self, connection: Connection, claim: Claim) -> None:
        try:
            self._keys.let_go(connection, [claim.token])
        except Exception:  # a user's function may raise anything, and its connection is closed by now
            log.exception("an advisory lock on %r was not released", claim.token)

    def look_ahead(self, connection: Connection, now: datetime, pass_over: PassOver = NOBODY, held: int = 0) -> Ahead:
        values = {**self._binding.values(now, pass_over), "tried_keys": self._encode_list(self._keys.all())}
        (rows,) = connection.run([Call(self._ahead, values)])
        return self._read_ahead(rows)

    def unfinished(self, connection: Connection, id: object) -> bool:
        return bool(connection.run([Call(self._unfinished, {"id": id, "group": self._group})])[0])
