"""Advisory locks that others keep: the dialect's own, where sessions have none, or functions of the user's.

What they hold the database cannot see, so a claim reads candidates with their keys, tries them one by one and reads on,
further each time and without the keys that it has tried, until it has a row: held keys hide nobody.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from threading import Lock
from typing import Any

from sqlqueue.column import Role
from sqlqueue.connection import Connection
from sqlqueue.dialect import Row
from sqlqueue.locks import LockFunction
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import Call, Statement, fill
from sqlqueue.statements import by_advisory_lock, unfinished
from sqlqueue.strategies.ahead import look_ahead, reader
from sqlqueue.strategies.base import NOBODY, RELEASE, Ahead, Claim, Move, PassOver, Settlement, Turned
from sqlqueue.strategies.binding import Binding
from sqlqueue.strategies.bookmark import BETWEEN_SWEEPS
from sqlqueue.strategies.reading import Reading
from sqlqueue.strategies.settling import Calls, Settling, changed_nothing
from sqlqueue.strategies.taking import take
from sqlqueue.strategies.waiting import unless_passed_over, waiting
from sqlqueue.words import Words

log = logging.getLogger("sqlqueue")

CANDIDATES = """
SELECT {id}, {key} AS key FROM {table}
JOIN (
    {waiting}
) AS _waiting ON {id} = _waiting.id
ORDER BY {claim_order}
"""

#: Candidates of a claim's first look, and of each further one. Each is a statement of its own, whose plan is made for
#: so many: for 1,024 at most the server joined them by reading the whole table. Few at first: where the next row is
#: free, which is nearly always, four candidates cost a quarter less of a claim than sixteen.
WINDOWS = (4, 64, 256, 1024)

#: How a key is given to a statement.
KEY = ColumnSpec(field="lock_key", type=str)


def _find(words: Words, key: str, free: Sequence[str], most: int) -> Statement:
    return words.statement(
        f"find {most} by advisory lock",
        CANDIDATES,
        width=2,
        writes=False,
        key=key,
        waiting=waiting(words, most, free, locked=False),
        claim_order=", ".join(words.order()),
    )


class Unsettled:
    """What is to be settled goes with the first row that is taken, or by itself."""

    def __init__(self, calls: Calls) -> None:
        self.calls = calls
        self.gone: list[Claim] = []

    def run(self, connection: Connection, take: Call | None = None) -> Sequence[Row]:
        """Settle what is not settled yet, and take; the rows that `take` returned."""
        calls = [call for call, _ in self.calls] + ([take] if take else [])
        if not calls:
            return ()
        results = connection.run(calls, durable=bool(self.calls))
        self.gone += changed_nothing(self.calls, results)
        self.calls = ()
        return results[-1] if take else ()


class ByFunction:
    """The advisory-lock strategy of one queue, with `lock` and `unlock` as functions of the driver's connection and a
    key.

    `columns` are what the handler reads of a row, `cap` the attempts after which a row is spent (None: no cap),
    `by_key` whether claims pass keys over. It claims one row at a time. A claim's token is its key.
    """

    def __init__(
        self,
        words: Words,
        *,
        lock: LockFunction,
        unlock: LockFunction,
        columns: Sequence[ColumnSpec],
        cap: int | None = None,
        group: str | None = None,
        by_key: bool = False,
    ) -> None:
        self._lock, self._unlock = lock, unlock
        self._reading = Reading(words, columns)
        self._group = group
        key = words.lock_key()
        free = [fill("NOT {held}", {"held": words.dialect.any_of(KEY, key, "tried_keys")})]
        free += [unless_passed_over(words)] if by_key else []
        self._finds = [_find(words, key, free, most) for most in WINDOWS]
        self._take = words.statement(
            "take by advisory lock",
            "{take}",
            width=self._reading.width,
            take=take(words, self._reading, capped=cap is not None, candidate=":id"),
        )
        self._ahead = look_ahead(words, free=free)
        self._settling = Settling(words, by_advisory_lock(words, capped=cap is not None), cap=cap)
        self._binding = Binding(words, group=group, cap=cap, constants=words.lock_texts())
        self._encode_list = words.dialect.list_encoder() or list
        self._unfinished = unfinished(words)
        self._read_ahead = reader(words)
        self._by_id = not words.spec.has(Role.RETRY_AFTER)
        self._behind: set[str] = set()
        self._passing = 0
        self._held: set[str] = set()
        self._changing = Lock()

    @property
    def claim(self) -> Statement:
        return self._finds[0]

    def statements(self) -> Sequence[Statement]:
        return [*self._finds, self._take, self._ahead, self._unfinished, *self._settling.statements()]

    def turn(
        self,
        connection: Connection,
        settlements: Sequence[tuple[Claim, Settlement]],
        limit: int,
        now: datetime,
        pass_over: PassOver = NOBODY,
    ) -> Turned:
        """The rows to be settled are those that `connection` serves. `limit` is 0 or 1."""
        values = self._binding.values(now, pass_over)
        settling = Unsettled(self._settling.calls(settlements, values, now))
        self._put_behind(settlements)
        found: Claim | None = None
        failed: Exception | None = None
        try:
            if limit:
                found = self._find(connection, values, settling)
            settling.run(connection)
        except Exception as error:
            if settling.calls or not settlements:
                raise
            failed = error  # what was to be settled is
        released, refused = self._let_all_go(connection, settlements)
        failed = failed or refused
        if not released or connection.closed:
            return self._closing(connection, found, now, Turned(gone=settling.gone, failed=failed))
        if limit and settlements and found is None and failed is None:
            try:
                found = self._find(connection, values, settling)  # of the keys that are free now
            except Exception as error:  # noqa: BLE001 - the settlement stands
                failed = error
        return Turned(claims=[] if found is None else [found], gone=settling.gone, failed=failed)

    def _let_all_go(
        self, connection: Connection, settlements: Sequence[tuple[Claim, Settlement]]
    ) -> tuple[bool, Exception | None]:
        """Release the locks of settled rows; whether all were, and what a function raised."""
        released, failed = True, None
        for claim, _ in settlements:
            try:
                released = self._release(connection, claim.token) and released
            except Exception as error:  # noqa: BLE001 - whatever the user's function raises, the row is settled
                released, failed = False, error
        return released, failed

    def _closing(self, connection: Connection, found: Claim | None, now: datetime, turned: Turned) -> Turned:
        """Nobody knows what its session still holds: the connection is closed, after the row that was just taken on it
        went back."""
        if found is not None:
            calls = self._settling.calls([(found, RELEASE)], self._binding.values(now), now)
            if calls and not connection.closed:
                connection.run([call for call, _ in calls])
            self._release(connection, found.token)
        connection.close()
        return turned

    def _put_behind(self, settlements: Sequence[tuple[Claim, Settlement]]) -> None:
        """In the order of ids alone, rows that come back at once would be claimed before those behind them."""
        if self._by_id:
            with self._changing:  # decided: whose turn it is
                self._behind.update(claim.token for claim, one in settlements if one.move is Move.RETRY)

    def _find(self, connection: Connection, values: dict[str, Any], settling: "Unsettled") -> Claim | None:
        with self._changing:  # decided: whose turn it is; every so often that of those that came back
            self._passing = (self._passing + 1) % (BETWEEN_SWEEPS + 1)
            if not self._passing:
                self._behind.clear()
            behind = set(self._behind)
        found = self._find_but(connection, values, settling, behind)
        return self._find_but(connection, values, settling, set()) if found is None and behind else found

    def _find_but(
        self, connection: Connection, values: dict[str, Any], settling: "Unsettled", tried: set[str]
    ) -> Claim | None:
        """The first row that can be taken, but for those whose keys were `tried`."""
        look = 0
        while True:
            candidates = self._candidates(connection, values, tried, look)
            for id, key in candidates:
                if key in tried:
                    continue
                tried.add(key)
                if not self._hold(connection, key):
                    continue
                rows = self._taken(connection, key, {**values, "id": id}, settling)
                if rows:
                    return self._reading.claims(rows, token=key)[0]
            if len(candidates) < WINDOWS[look]:
                return None
            look = min(look + 1, len(WINDOWS) - 1)

    def _candidates(self, connection: Connection, values: dict[str, Any], tried: set[str], look: int) -> Sequence[Row]:
        with self._changing:  # decided: which keys this consumer holds
            keys = [*tried, *self._held]
        bound = {**values, "tried_keys": self._encode_list(keys)}
        return connection.run([Call(self._finds[look], bound)])[0]

    def _taken(self, connection: Connection, key: str, values: dict[str, Any], settling: "Unsettled") -> Sequence[Row]:
        """The row, taken under its lock, in one transaction with what is to be settled; else the lock is let go."""
        rows: Sequence[Row] = ()
        try:
            rows = settling.run(connection, Call(self._take, values))
        finally:
            if not rows:
                self._let_go(connection, key)
        return rows

    def _hold(self, connection: Connection, key: str) -> bool:
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

    def _let_go(self, connection: Connection, key: str) -> None:
        """Release a key's lock. Where that is not confirmed the connection is closed, and with it what its session
        holds."""
        released = False
        try:
            released = self._release(connection, key)
        finally:
            if not released:
                connection.close()

    def _release(self, connection: Connection, key: str) -> bool:
        """Release a key's lock; whether that is confirmed."""
        released = False
        try:
            released = bool(self._unlock(connection.driver, key))
        finally:
            with self._changing:  # decided: others of this consumer may try it
                self._held.discard(key)
            if not released:
                log.warning("an advisory lock on %r was not released; its connection is closed", key)
        return released

    def hold_again(self, connection: Connection, claim: Claim) -> bool:
        """The lock outlives a transaction that failed."""
        return not connection.closed

    def let_go(self, connection: Connection, claim: Claim) -> None:
        try:
            self._let_go(connection, claim.token)
        except Exception:  # a user's function may raise anything, and its connection is closed by now
            log.exception("an advisory lock on %r was not released", claim.token)

    def look_ahead(self, connection: Connection, now: datetime, pass_over: PassOver = NOBODY, held: int = 0) -> Ahead:
        with self._changing:  # decided: which keys this consumer holds
            keys = list(self._held)
        values = {**self._binding.values(now, pass_over), "tried_keys": self._encode_list(keys)}
        (rows,) = connection.run([Call(self._ahead, values)])
        return self._read_ahead(rows)

    def unfinished(self, connection: Connection, id: object) -> bool:
        return bool(connection.run([Call(self._unfinished, {"id": id, "group": self._group})])[0])
