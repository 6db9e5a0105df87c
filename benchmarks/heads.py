"""Tables of FIFO lines with a key that has a large backlog and without one, and claims on them side by side.

A claim is one turn of a strategy that has claimed nothing yet, so it begins at the first line, which is the busy key's
where there is one. It runs as a consumer's does, on a connection of the pool, and is undone afterwards.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from typing import Any

import attrs

from benchmarks.jobs import LineJob, LockedLineJob, fill_lines, queue_on
from benchmarks.race import timed
from benchmarks.report import Rounds
from sqlqueue import Queue
from sqlqueue.delivery import reader
from sqlqueue.outcome import RELEASE
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.spec import spec_of
from sqlqueue.strategies.claim import Claim, Strategy, Turn
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.plan import QueuePlan
from sqlqueue.strategies.row_lock import RowLock
from tests.support.database import Database

#: Rows of a key, in the table without a busy one.
ROWS_OF_A_KEY = 100

WARM_UP = 10


@attrs.frozen
class How:
    """How rows are held. `heads`: claimed by one turn."""

    held_by: str
    declared: type
    heads: int
    strategy: Callable[..., Strategy[Any]]

    def fresh(self, queue: Queue) -> Strategy[Any]:
        """A strategy of the queue that has claimed nothing yet."""
        sql = QueueSQL(queue.broker.dialect, queue.spec, grouped=False)
        columns = reader(queue.broker.dialect, queue.spec, queue.broker.codec, Any).columns
        return self.strategy(QueuePlan(sql=sql, columns=columns, most=self.heads, lease=3600.0))


BY_LEASE = How("lease", LineJob, 16, Lease)
BY_ROW_LOCK = How("row lock", LockedLineJob, 1, RowLock)


@attrs.define
class Head:
    """Claims of one table's first lines, on a connection of their own."""

    _how: How
    _queue: Queue
    _connection: Any
    _held: list[tuple[Strategy[Any], Claim]] = attrs.field(factory=list)

    def claim(self, rounds: Rounds, limit: int) -> None:
        strategy = self._how.fresh(self._queue)
        now = datetime.now(timezone.utc)
        with timed(rounds):
            turned = strategy.turn(self._connection, Turn(limit=limit, now=now))
        assert len(turned.claims) == limit
        self._held = [(strategy, claim) for claim in turned.claims]

    def undo(self) -> None:
        held, self._held = self._held, []
        if held:
            strategy, _ = held[0]
            releases = [(claim, RELEASE) for _, claim in held]
            turned = strategy.turn(self._connection, Turn(settlements=releases, now=datetime.now(timezone.utc)))
            assert not turned.lost
            assert not turned.gone

    @property
    def ids(self) -> list[Any]:
        return [claim.id for _, claim in self._held]


@attrs.define
class Tables:
    """Claims side by side: where keys have 100 rows, where each has one, and where the first has three fifths of all.
    `other` is a consumer elsewhere, at work on the busy key."""

    heads: int
    even: Head
    single: Head
    busy: Head
    other: Head
    of_even: Rounds = attrs.field(factory=Rounds)
    of_single: Rounds = attrs.field(factory=Rounds)
    of_free: Rounds = attrs.field(factory=Rounds)
    of_in_work: Rounds = attrs.field(factory=Rounds)

    def set_up(self) -> None:
        """All claims but the last: with the busy key's head in work."""
        self.busy.undo()
        self.other.undo()
        self._plain()
        self.busy.claim(self.of_free, self.heads)
        assert 1 in self.busy.ids
        self.busy.undo()
        self._plain()
        self.other.claim(Rounds(), 1)
        assert self.other.ids == [1]

    def _plain(self) -> None:
        for head, rounds in ((self.even, self.of_even), (self.single, self.of_single)):
            head.claim(rounds, self.heads)
            head.undo()

    def claim(self) -> None:
        self.busy.claim(self.of_in_work, self.heads)
        assert 1 not in self.busy.ids

    def warm_up(self) -> None:
        for _ in range(WARM_UP):
            self.set_up()
            self.claim()
        for rounds in self.all:
            rounds.forget()

    @property
    def all(self) -> tuple[Rounds, ...]:
        return self.of_even, self.of_single, self.of_free, self.of_in_work

    @property
    def milliseconds(self) -> list[float]:
        return [rounds.milliseconds for rounds in self.all]


@contextmanager
def tables(database: Database, how: How, rows: int) -> Iterator[Tables]:
    keys = max(1, rows // ROWS_OF_A_KEY)
    busy = ("busy" if row % 5 < 3 else f"key {row // 5 % keys}" for row in range(rows))
    with ExitStack() as until_end:

        def filled(name: str, accounts: Iterable[str]) -> Queue:
            declared = attrs.evolve(spec_of(how.declared), name=name)
            queue = until_end.enter_context(queue_on(database, declared))
            fill_lines(database, database.connect(), accounts, name)
            if database.kind == "postgres":
                database.execute(f"VACUUM ANALYZE {name}")  # or it comes by itself while we measure
            return queue

        def head(queue: Queue) -> Head:
            return Head(how, queue, until_end.enter_context(queue.broker.pool.connection()))

        even = head(filled("bench_even", (f"key {row % keys}" for row in range(rows))))
        single = head(filled("bench_single", (f"key {row}" for row in range(rows))))
        queue = filled("bench_busy", busy)
        made = Tables(how.heads, even, single, head(queue), head(queue))
        yield made
        made.busy.undo()
        made.other.undo()
