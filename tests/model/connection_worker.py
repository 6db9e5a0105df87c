"""A consumer whose deliveries hold their connections, without threads: what it should claim, and what it does."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import Any

import attrs

from sqlqueue import Broker, Role
from sqlqueue.dialect import Trouble
from sqlqueue.outcome import Move, Settlement
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.strategies.advisory import Advisory
from sqlqueue.strategies.claim import Claim, ConnectionStrategy, Turn
from sqlqueue.strategies.key_locks import KeyLocked
from sqlqueue.strategies.plan import QueuePlan
from sqlqueue.strategies.row_lock import RowLock
from tests.model.queue import AT_ONCE, Row, Table
from tests.support.database import Database

#: Rows that one consumer has in work at once.
WORKERS = 2


@attrs.define(eq=False)
class Worker:
    """A connection, the row that it holds, and the key of that row's lock."""

    strategy: ConnectionStrategy
    claim: Claim | None = None
    key: object = None
    connection: Any = None
    lent: ExitStack = attrs.field(factory=ExitStack)

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()  # first, for its session may be over
        self.claim, self.connection = None, None
        self.lent.close()


def brokers(database: Database) -> list[Broker]:
    """One for each of two processes."""
    return [Broker(database.url), Broker(database.url)]


class Instance:
    """One process: its broker with its connections and, where the database has none, its locks, which end with it."""

    def __init__(self, table: Table, broker: Broker) -> None:
        self.table, self.broker = table, broker
        self.strategy = self._strategy()
        self.workers = [Worker(self.strategy) for _ in range(WORKERS)]
        self._goes_round = False
        self._came_back: Row | None = None
        self._strikes = 0
        self.lost: list[Worker] = []

    def _strategy(self) -> ConnectionStrategy:
        form, lock = self.table.form, self.table.form.spec.advisory_lock
        sql = QueueSQL(self.broker.dialect, form.spec, grouped=form.group is not None)
        payload = form.spec.role(Role.PAYLOAD)
        assert payload is not None
        dead_letters = form.dead_letters(sql, (payload,))
        plan = QueuePlan(sql=sql, columns=(payload,), cap=form.cap, group=form.group, dead_letters=dead_letters)
        if lock is None:
            return RowLock(plan)
        if lock.lock is not None and lock.unlock is not None:
            return KeyLocked(plan, lock=lock.lock, unlock=lock.unlock)
        locks = self.broker.pool.key_locks
        if locks is None:
            return Advisory(plan)
        locks.open()
        return KeyLocked(plan, lock=lambda _, key: locks.try_lock(key), unlock=lambda _, key: locks.unlock(key))

    @property
    def free_workers(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.claim is None]

    @property
    def busy_workers(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.claim is not None]

    # -- turns ------------------------------------------------------------------------------------------------

    def look(self, worker: Worker) -> None:
        """Claim a row; the worker's connection is none of the pool's, whose threads would meddle with the model."""
        if worker.connection is None:
            worker.connection = worker.lent.enter_context(self.broker.pool.direct())
        self._turn(worker, None, look=True)

    def settle(self, worker: Worker, settlement: Settlement, *, look: bool) -> None:
        """Settle a worker's row and, with `look`, claim another in the same turn."""
        self._turn(worker, settlement, look=look)

    def _turn(self, worker: Worker, settlement: Settlement | None, *, look: bool) -> None:
        claim, now = worker.claim, self.table.now
        settling = [(claim, settlement)] if claim and settlement else []
        turned = self.strategy.turn(worker.connection, Turn(settlements=settling, limit=int(look), now=now))
        assert turned.failed is None
        assert turned.lost == ()
        assert list(turned.gone) == [claim for claim, one in settling if not self._settle(claim, one, now)]
        assert not worker.connection.closed
        own = [worker.key] if claim and isinstance(self.strategy, KeyLocked) else []
        worker.claim = self._claimed(turned.claims, own) if look else None
        if worker.claim is None:
            assert list(turned.claims) == []
        elif self.table.form.spec.advisory_lock is not None:
            worker.key = self.table.lock(self.table.rows[worker.claim.id])

    # -- what a turn should do --------------------------------------------------------------------------------

    def _claimed(self, claims: Any, own: list[Any]) -> Claim | None:
        """`own`: the key of the row that was settled, if that was still locked when the next was looked for."""
        free = self.table.claimable()
        if isinstance(self.strategy, KeyLocked):
            # A key is in work here until its worker lets it go, although its session may be over.
            lost = [worker.key for worker in self.lost]
            free = [row for row in free if self.table.lock(row) not in lost]
        if own:
            free = [row for row in free if self.table.lock(row) not in own] or free
        if self._goes_round or self.table.form.spec.fifo_column:
            rows = self.table.check_took(claims, free, min(len(free), 1), 1)
        else:
            rows = free[:1]
        self._check_fair(rows, free)
        expected = [(row.id, self._begin(row)) for row in rows]
        taken = [(claim.id, claim.attempt) for claim in claims]
        assert taken == expected, (taken, expected)
        return claims[0] if claims else None

    def _check_fair(self, rows: Sequence[Row], free: Sequence[Row]) -> None:
        """A row that comes back at once starves nobody, although each of two scans may begin at the start."""
        again = self._came_back is not None and rows == [self._came_back] and len(free) > 1
        self._came_back = None
        self._strikes = self._strikes + 1 if again else 0
        assert not self._goes_round or self._strikes <= 2

    def _begin(self, row: Row) -> int | None:
        """Take the row; the attempt of this delivery."""
        row.held = True
        self._lock(row)
        if not self.table.has(Role.ATTEMPT):
            row.running = row.running or self.table.has(Role.RUNNING)
            return None
        attempt = 1 if self._starts_afresh(row) else self._counted(row)
        if self.table.form.spec.advisory_lock is not None:
            row.attempt, row.cleared = attempt, False
            row.running = self.table.has(Role.RUNNING)
        return attempt

    def _counted(self, row: Row) -> int:
        """By advisory lock a spent row stays at one beyond its cap, however often its worker is lost."""
        by_lock, cap = self.table.form.spec.advisory_lock is not None, self.table.form.cap
        spent = by_lock and cap is not None and (row.attempt or 0) > cap
        return (row.attempt or 0) + (0 if spent else 1)

    def _lock(self, row: Row) -> None:
        if self.table.form.spec.advisory_lock is not None:
            self.table.locked[row.id] = self.table.lock(row)

    def _starts_afresh(self, row: Row) -> bool:
        """Its error was cleared. A claim by advisory lock takes a spent row for that whose worker was lost as well."""
        cap = self.table.form.cap
        by_lock = self.table.form.spec.advisory_lock is not None
        return row.cleared or (by_lock and cap is not None and (row.attempt or 0) > cap + 1)

    def _settle(self, claim: Claim, settlement: Settlement, now: datetime) -> bool:
        """Whether the settlement finds the row, and its effect."""
        row = self.table.rows.get(claim.id)
        self.table.locked.pop(claim.id, None)
        self._note_again(settlement)
        if row is None:
            return not self._writes(settlement.move)
        row.held, row.running = False, False
        by_lock = self.table.form.spec.advisory_lock is not None
        if settlement.move is Move.RELEASE:
            row.attempt = row.attempt - 1 if by_lock and row.attempt is not None and self._counts else row.attempt
            return True
        if not by_lock and self._counts:
            row.attempt, row.cleared = claim.attempt, False
        if settlement.move is Move.FINISH:
            self.table.finish(row, now)
        elif settlement.move is Move.DEAD_LETTER:
            self.table.bury(row, now)
        elif settlement.move is Move.PARK:
            self._park(row, settlement, marks=by_lock)
        else:
            self._retry(row, settlement, now)
        return True

    @property
    def _counts(self) -> bool:
        return self.table.has(Role.ATTEMPT)

    def _note_again(self, settlement: Settlement) -> None:
        """Behind a row that came back at once, and that nothing hides, claims go on, and around."""
        if settlement.move is Move.RETRY and not self.table.has(Role.RETRY_AFTER):
            self._goes_round = self.table.form.spec.fifo_column is None

    def _writes(self, move: Move) -> bool:
        """Whether a settlement writes anything to the row, and so finds out whether it is there."""
        if move is Move.RELEASE and self.table.form.spec.advisory_lock is None:
            return False
        hides = move is Move.RETRY and self.table.has(Role.RETRY_AFTER)
        return (
            move in (Move.FINISH, Move.PARK, Move.DEAD_LETTER)
            or hides
            or self._counts_at(move)
            or self.table.has(Role.RUNNING)
        )

    def _counts_at(self, move: Move) -> bool:
        by_lock = self.table.form.spec.advisory_lock is not None
        return self._counts and (not by_lock if move is Move.RETRY else by_lock)

    def _park(self, row: Row, settlement: Settlement, *, marks: bool) -> None:
        row.error = settlement.error
        cap = self.table.form.cap
        if marks and cap is not None and row.attempt is not None and row.attempt >= cap:
            row.attempt = cap + 2  # what tells it from a row whose last worker was lost

    def _retry(self, row: Row, settlement: Settlement, now: datetime) -> None:
        if self.table.has(Role.RETRY_AFTER):
            row.retry_after = settlement.due or now + AT_ONCE
        else:
            self._came_back = row

    # -- ends -------------------------------------------------------------------------------------------------

    def crash(self) -> None:
        """Its connections are closed without a word, and its locks with them."""
        self._lose(self.busy_workers)
        with self._waits_for_the_server(self.workers):
            for worker in self.workers:
                worker.close()
        locks = self.broker.pool.key_locks
        if locks is not None:
            locks.close()

    def lose_sessions(self) -> list[Worker]:
        """The server ends the sessions of its rows in work, which it has not noticed; those workers."""
        workers = self.busy_workers
        with self._waits_for_the_server(workers):
            pass
        self._lose(workers)
        self.lost += workers
        self.workers = [Worker(self.strategy) if worker in workers else worker for worker in self.workers]
        return workers

    @contextmanager
    def _waits_for_the_server(self, workers: list[Worker]) -> Iterator[None]:
        postgres = self.table.others.kind == "postgres"
        connected = [worker for worker in workers if worker.connection is not None] if postgres else []
        pids = [worker.connection.driver.info.backend_pid for worker in connected]
        yield
        for pid in pids:
            # Waits until the session is over; it may be already.
            self.table.others.ask("SELECT pg_terminate_backend(?, 10000)", pid)

    def _lose(self, workers: list[Worker]) -> None:
        for worker in workers:
            assert worker.claim is not None
            row = self.table.rows.get(worker.claim.id)
            self.table.locked.pop(worker.claim.id, None)
            if row is not None:
                row.held = False

    def settle_late(self, worker: Worker, settlement: Settlement) -> None:
        """What a worker says whose session is over changes nothing."""
        assert worker.claim is not None
        self._note_again(settlement)
        lost = None
        try:
            self.strategy.turn(worker.connection, Turn(settlements=[(worker.claim, settlement)], now=self.table.now))
        except Exception as error:  # noqa: BLE001 - the driver's own, told apart below
            lost = self.broker.dialect.classify(error)
        assert lost is Trouble.LOST or (lost is None and not self._writes(settlement.move))
        self.strategy.let_go(worker.connection, worker.claim)
        self.lost.remove(worker)
        worker.close()
