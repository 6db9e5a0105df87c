"""The keys whose locks one consumer holds, taken and released by functions of a connection and a key.

Advisory locks that others keep: the dialect's own, where sessions have none, or functions of the user's.

What they hold the database cannot see, so a claim reads candidates with their keys, tries them one by one and reads on,
further each time and without the keys that it has tried, until it has a row: held keys hide nobody. The first look
leaves nothing out, which makes it the cheapest.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, repeat
from threading import Lock
from typing import Any, ClassVar

from sqlqueue.dialect import Connection, Row
from sqlqueue.outcome import RELEASE, Move, Settlement
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, LockFunction
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.statements import by_advisory_lock, unfinished
from sqlqueue.strategies.claim import NOBODY, Ahead, Claim, PassOver, Turned
from sqlqueue.strategies.dead_letter import DeadLetters
from sqlqueue.strategies.due import due_reader, look_ahead
from sqlqueue.strategies.order import found_in_one_walk, in_key_order, take, waiting, waiting_rows
from sqlqueue.strategies.plan import Parameters, Reading
from sqlqueue.strategies.scan import BETWEEN_SWEEPS
from sqlqueue.strategies.settle import Calls, Settling, changed_nothing, reclaim

log = logging.getLogger("sqlqueue")


class HeldKeys:
    """For any thread. Whatever the functions raise passes through."""

    def __init__(self, lock: LockFunction, unlock: LockFunction) -> None:
        self._lock, self._unlock = lock, unlock
        self._held: set[str] = set()
        self._changing = Lock()

    def all(self) -> Sequence[str]:
        with self._changing:  # decided: which keys this consumer holds
            return tuple(self._held)

    def hold(self, connection: Connection, key: str) -> bool:
        """Lock the key; False where another row of this consumer, or somebody else, holds it."""
        with self._changing:  # decided: who of this consumer tries the key
            if key in self._held:
                return False
            self._held.add(key)
        taken = False
        try:
            taken = bool(self._lock(connection.driver, key))
        finally:
            if not taken:
                with self._changing:  # decided: it is nobody's here
                    self._held.discard(key)
        return taken

    def lock_again(self, connection: Connection, key: str, still: Callable[[], bool]) -> bool:
        """Lock a key that is held for another connection too, where the functions lock for one; not unless the row is
        `still()` ours, which is the answer."""
        ours, locked = False, bool(self._lock(connection.driver, key))
        try:
            ours = still()
        finally:
            if locked and not ours and not self._unlock(connection.driver, key):
                connection.close()
        return ours

    def release(self, connection: Connection, key: str) -> bool:
        """Release the key's lock; whether that is confirmed."""
        released = False
        try:
            released = bool(self._unlock(connection.driver, key))
        finally:
            with self._changing:  # decided: others of this consumer may try it
                self._held.discard(key)
            if not released:
                log.warning("an advisory lock on %r was not released; its connection is closed", key)
        return released

    def release_all(self, connection: Connection, keys: Sequence[str]) -> tuple[bool, Exception | None]:
        """Release the locks; whether all were, and what a function raised."""
        released, failed = True, None
        for key in keys:
            try:
                released = self.release(connection, key) and released
            except Exception as error:  # noqa: BLE001 - whatever the user's function raises, the others are released
                released, failed = False, error
        return released, failed

    def let_go(self, connection: Connection, keys: Sequence[str]) -> None:
        """Release the locks. Where that is not confirmed the connection is closed, and with it what its
        session holds."""
        released, failed = self.release_all(connection, keys)
        if not released:
            connection.close()
        if failed is not None:
            raise failed


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


def _find(sql: QueueSQL, key: str, most: int, name: str, conditions: Sequence[str]) -> Statement:
    select = f"{sql.column(Role.ID)}, {key} AS key"
    if found_in_one_walk(sql):
        template = waiting_rows(sql, select, most, conditions, locked=False)
        return sql.statement(name, template, width=2, writes=False)
    rows, order = waiting(sql, most, conditions, locked=False), ", ".join(sql.order())
    return sql.statement(name, JOINED, width=2, writes=False, select=select, waiting=rows, claim_order=order)


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
        sql: QueueSQL,
        *,
        lock: LockFunction,
        unlock: LockFunction,
        columns: Sequence[ColumnSpec],
        held: int = 1,
        cap: int | None = None,
        group: str | None = None,
        by_key: bool = False,
        leaving: DeadLetters | None = None,
    ) -> None:
        self._keys = HeldKeys(lock, unlock)
        self._reading = Reading(sql, columns)
        self._group = group
        key, passed = sql.lock_key(), in_key_order(sql) if by_key else []
        free = [fill("NOT {held}", {"held": sql.dialect.any_of(KEY, key, "tried_keys")}), *passed]
        nearest = min(max(LEAST, 2 * held), WINDOWS[-1])
        self._finds = [(nearest, _find(sql, key, nearest, "find by advisory lock", passed))]
        self._finds += [(most, _find(sql, key, most, f"find {most} by advisory lock", free)) for most in WINDOWS]
        self._take = sql.statement(
            "take by advisory lock",
            "{take}",
            width=self._reading.width,
            take=take(sql, self._reading, capped=cap is not None, candidate=":id"),
        )
        self._ahead = look_ahead(sql, free=free)
        self._settling = Settling(sql, by_advisory_lock(sql, capped=cap is not None), cap=cap, leaving=leaving)
        self._binding = Parameters(sql, group=group, cap=cap, constants=sql.lock_texts())
        self._encode_list = sql.dialect.list_encoder() or list
        self._unfinished, self._again = unfinished(sql), reclaim(sql, "find again")
        self._read_ahead = due_reader(sql)
        self._by_id = not sql.spec.has(Role.RETRY_AFTER)
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
