"""Advisory locks that others keep: the dialect's own, where sessions have none, or functions of the user's.

What they hold the database cannot see, so a claim reads candidates with their keys, tries them one by one and reads on,
further each time and without the keys that it has tried, until it has a row: held keys hide nobody. The first try
leaves nothing out, which makes it the cheapest. A row whose key is locked is taken as advisory.py takes it: while it is
still claimable, counting the attempt.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, repeat
from threading import Lock
from typing import Any, ClassVar

from sqlqueue.connection import KeyLocks
from sqlqueue.dialect import Connection, Row
from sqlqueue.outcome import RELEASE, Move
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec, LockFunction
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.statements import by_advisory_lock
from sqlqueue.strategies.claim import NOBODY, Claim, PassOver, Turn, Turned, Upcoming
from sqlqueue.strategies.due import Inquiry, next_due
from sqlqueue.strategies.order import found_in_one_walk, in_key_order, take, waiting, waiting_rows
from sqlqueue.strategies.plan import Parameters, QueuePlan, Reading
from sqlqueue.strategies.scan import BETWEEN_SWEEPS
from sqlqueue.strategies.settle import Settling, changed_nothing, reclaim

log = logging.getLogger("sqlqueue")


class HeldKeys:
    """The keys whose locks one consumer holds, taken and released by functions of the driver's connection and a key.
    For any thread. Whatever the functions raise passes through."""

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

    def relock(self, connection: Connection, key: str, still: Callable[[], bool]) -> bool:
        """Lock a key that is held for another connection too, where the functions lock for one; not unless the row is
        `still()` ours, which is what it returns."""
        ours, locked = False, bool(self._lock(connection.driver, key))
        try:
            ours = still()
        finally:
            if locked and not ours and not self._unlock(connection.driver, key):
                connection.close()
        return ours

    def release(self, connection: Connection, keys: Sequence[str]) -> tuple[bool, Exception | None]:
        """Release the locks; whether that is confirmed of all, and what a function raised."""
        all_released, failed = True, None
        for key in keys:
            released = False
            try:
                released = bool(self._unlock(connection.driver, key))
            except Exception as error:  # noqa: BLE001 - whatever the user's function raises, the others are released
                failed = error
            finally:
                with self._changing:  # decided: others of this consumer may try it
                    self._held.discard(key)
            if not released:
                all_released = False
                log.warning("an advisory lock on %r was not released; its connection is closed", key)
        return all_released, failed

    def let_go(self, connection: Connection, keys: Sequence[str]) -> None:
        """Release the locks. Where that is not confirmed the connection is closed, and with it what its
        session holds."""
        released, failed = self.release(connection, keys)
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

#: Candidates of the first try: as many as this consumer may hold, and as many behind them; at least so many.
LEAST = 4

#: Candidates of each further try. Each is a statement of its own, whose plan is made for so many: for 1,024 at most
#: the server joined them by reading the whole table.
WINDOWS = (64, 256, 1024)

#: How a key is given to a statement.
KEY = ColumnSpec(field="lock_key", type=str)


def _finding(sql: QueueSQL, key: str, most: int, name: str, conditions: Sequence[str]) -> Statement:
    select = f"{sql.column(Role.ID)}, {key} AS key"
    if found_in_one_walk(sql):
        template = waiting_rows(sql, select, most, conditions, locked=False)
        return sql.statement(name, template, width=2, writes=False)
    rows, order = waiting(sql, most, conditions, locked=False), ", ".join(sql.order())
    return sql.statement(name, JOINED, width=2, writes=False, select=select, waiting=rows, claim_order=order)


class Progress:
    """How far a turn has come: what it settles, which goes with the first rows that are taken or by itself, and what it
    has claimed. `wanted`: the rows that are still missing."""

    def __init__(
        self,
        connection: Connection,
        values: Mapping[str, Any],
        limit: int,
        calls: Sequence[Call],
        settled: Sequence[Sequence[Claim]],
    ) -> None:
        self.connection, self.values, self.wanted = connection, values, limit
        self.calls, self._settled = calls, settled
        self.gone: Sequence[Claim] = ()
        self.claims: list[Claim] = []

    def run(self, takes: Sequence[Call] = ()) -> Sequence[Sequence[Row]]:
        """Settle what is not settled yet, and take; the rows that each of `takes` returned."""
        settling = self.calls
        results = self.connection.run([*settling, *takes], durable=bool(settling))
        if settling:
            self.gone, self.calls = changed_nothing(self._settled, results), ()
        return results[len(settling) :]


def key_locked(plan: QueuePlan, locks: KeyLocks) -> "KeyLocked":
    """The strategy with the dialect's own locks, which no connection holds."""
    return KeyLocked(plan, lock=lambda _, key: locks.try_lock(key), unlock=lambda _, key: locks.unlock(key))


class KeyLocked(Inquiry):
    """The advisory-lock strategy of one queue, with `lock` and `unlock` as functions of the driver's connection and a
    key. A claim's token is its key."""

    one_transaction: ClassVar[bool] = False
    by_session: ClassVar[bool] = False

    def __init__(self, plan: QueuePlan, *, lock: LockFunction, unlock: LockFunction) -> None:
        sql = plan.sql
        self._keys = HeldKeys(lock, unlock)
        self._reading = Reading(plan)
        key, passed = sql.lock_key(), in_key_order(sql) if plan.by_key else []
        free = [fill("NOT {held}", {"held": sql.dialect.any_of(KEY, key, "tried_keys")}), *passed]
        nearest = min(max(LEAST, 2 * plan.most), WINDOWS[-1])
        self._finds = [(nearest, _finding(sql, key, nearest, "find by advisory lock", passed))]
        self._finds += [(most, _finding(sql, key, most, f"find {most} by advisory lock", free)) for most in WINDOWS]
        taking = take(plan, self._reading, ":id")
        self._take = sql.statement("take by advisory lock", "{take}", width=self._reading.width, take=taking)
        self._settling = Settling(plan, by_advisory_lock(sql, capped=plan.cap is not None))
        self._encode_list = sql.dialect.list_encoder() or list
        self._reclaim = reclaim(sql, "find again")
        self._by_id = not sql.spec.has(Role.RETRY_AFTER)
        self._behind: set[str] = set()
        self._since_all = 0
        self._changing = Lock()
        parameters = Parameters(sql, group=plan.group, cap=plan.cap, constants=sql.lock_texts())
        super().__init__(plan, parameters, next_due(sql, free=free))

    @property
    def claim(self) -> Statement:
        return self._finds[0][1]

    def statements(self) -> Sequence[Statement]:
        finds = [find for _, find in self._finds]
        own = (self._take, self._next_due, self._reclaim, self._unfinished)
        return [*finds, *own, *self._settling.statements()]

    def turn(self, connection: Connection, turn: Turn) -> Turned:
        """Where the functions lock for a connection, the rows to be settled are those that `connection` serves."""
        values = self._parameters.values(turn.now, turn.pass_over)
        calls, settled = self._settling.calls(turn, values) if turn.settlements else ([], [])
        progress = Progress(connection, values, turn.limit, calls, settled)
        if self._by_id and turn.settlements:
            self._put_behind(turn)
        failed: Exception | None = None
        try:
            if turn.limit:
                self._claim(progress)
            if progress.calls:
                progress.run()
        except Exception as error:
            if progress.calls or not (turn.settlements or progress.claims):
                raise
            failed = error  # what was to be settled is
        released = True
        if turn.settlements:
            released, refused = self._keys.release(connection, [claim.token for claim, _ in turn.settlements])
            failed = failed or refused
        if (turn.settlements or progress.claims) and (not released or connection.closed):
            self._close(progress, turn)
        elif turn.settlements and failed is None and progress.wanted:
            try:
                self._claim(progress)  # of the keys that are free now
            except Exception as error:  # noqa: BLE001 - the settlement stands
                failed = error
        # Rows that were claimed go before an error, which the next claim meets again.
        return Turned(claims=progress.claims, gone=progress.gone, failed=None if progress.claims else failed)

    def _close(self, progress: Progress, turn: Turn) -> None:
        """Nobody knows what its session still holds: the connection is closed, after the rows that were just taken on
        it went back."""
        connection, claims = progress.connection, progress.claims
        releases = Turn(settlements=[(claim, RELEASE) for claim in claims], now=turn.now)
        calls, _ = self._settling.calls(releases, progress.values)
        if calls and not connection.closed:
            connection.run(calls)
        self._keys.release(connection, [claim.token for claim in claims])
        claims.clear()
        connection.close()

    def _put_behind(self, turn: Turn) -> None:
        """In the order of ids alone, rows that come back at once would be claimed before those behind them."""
        for claim, settlement in turn.settlements:
            if settlement.move is Move.RETRY:
                with self._changing:  # decided: whose turn it is
                    self._behind.add(claim.token)

    def _claim(self, progress: Progress) -> None:
        """Claim what the turn still wants, those that came back at once after all others."""
        if not self._by_id:
            self._find(progress, set())
            return
        with self._changing:  # decided: whose turn it is; every so often that of those that came back
            self._since_all = (self._since_all + 1) % (BETWEEN_SWEEPS + 1)
            if not self._since_all:
                self._behind.clear()
            behind = set(self._behind)
        self._find(progress, set(behind))
        if behind and progress.wanted:
            self._find(progress, set())

    def _find(self, progress: Progress, tried: set[str]) -> None:
        """Claim the first rows that can be taken, but for those whose keys were `tried`."""
        bound = progress.values
        for most, find in chain(self._finds, repeat(self._finds[-1])):
            candidates = progress.connection.run([Call(find, bound)])[0]
            untried = iter(candidates)
            while progress.wanted and (locked := self._hold_some(progress, untried, tried)):
                self._take_locked(progress, locked)
            if not progress.wanted or len(candidates) < most:
                return
            bound = {**progress.values, "tried_keys": self._encode_list([*tried, *self._keys.all()])}

    def _hold_some(self, progress: Progress, candidates: Iterator[Row], tried: set[str]) -> Sequence[Row]:
        """Lock the keys of the next candidates, of as many as are wanted; those that were locked."""
        locked: list[Row] = []
        done = False
        try:
            while len(locked) < progress.wanted:
                candidate = next(candidates, None)
                if candidate is None:
                    break
                key = candidate[1]
                if key not in tried:
                    tried.add(key)
                    if self._keys.hold(progress.connection, key):
                        locked.append(candidate)
            done = True
            return locked
        finally:
            if not done:
                self._keys.let_go(progress.connection, [key for _, key in locked])

    def _take_locked(self, progress: Progress, locked: Sequence[Row]) -> None:
        """Take the rows whose keys are locked, in one transaction with what is to be settled; let go of what was not
        there any more."""
        missed: Sequence[Any] = [key for _, key in locked]
        try:
            results = progress.run([Call(self._take, {**progress.values, "id": id}) for id, _ in locked])
            missed = [key for (_, key), rows in zip(locked, results, strict=True) if not rows]
            for (_, key), rows in zip(locked, results, strict=True):
                progress.claims += self._reading.claims(rows, token=key)
            progress.wanted -= len(locked) - len(missed)
        finally:
            if missed:
                self._keys.let_go(progress.connection, missed)

    def reclaim(self, connection: Connection, claim: Claim) -> bool:
        """The lock outlives a transaction that failed."""
        return not connection.closed

    def take_over(self, connection: Connection, claim: Claim) -> bool:
        """What the functions lock for a connection is locked again for this one. What they keep otherwise is locked
        still; which of the two it is shows only in that nobody else has begun the row."""
        values = {"id": claim.id, "group": self._group, "attempt": claim.attempt}
        find = Call(self._reclaim, values)
        return self._keys.relock(connection, claim.token, lambda: bool(connection.run([find])[0]))

    def let_go(self, connection: Connection, claim: Claim) -> None:
        try:
            self._keys.let_go(connection, [claim.token])
        except Exception:  # a user's function may raise anything, and its connection is closed by now
            log.exception("an advisory lock on %r was not released", claim.token)

    def look_ahead(
        self, connection: Connection, now: datetime, pass_over: PassOver = NOBODY, held: int = 0
    ) -> Upcoming:
        values = self._parameters.values(now, pass_over)
        return self._ask(connection, {**values, "tried_keys": self._encode_list(self._keys.all())})
