"""Instances of a service that work FIFO lines off, claim by claim, by whatever holds the rows."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.dialect import Connection
from sqlqueue.outcome import ACKNOWLEDGE, Settlement
from sqlqueue.queue import Queue
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.sql import fill
from sqlqueue.strategies.claim import Claim, Turn, Upcoming
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.plan import QueuePlan
from sqlqueue.strategies.row_lock import RowLock
from sqlqueue.testing.contract.harness import Contract, Database
from sqlqueue.testing.contract.line_tables import by_row_lock

Declare = Callable[["type | TableSpec"], TableSpec]

# Many rows by another program, numbered from 0.
FILL = """
INSERT INTO line_jobs (account, due_at, attempt, payload)
WITH RECURSIVE numbers(number) AS (
    SELECT 0
    UNION ALL
    SELECT number + 1 FROM numbers
    WHERE number < {many} - 1
)
SELECT {account}, {due_at}, 0, CAST(number AS text) FROM numbers
"""


class Instance:
    """An instance of a service that claims a row at a time: by the lease where the table has one, else by row lock.

    `wrap` puts something in between on each of its connections.
    """

    def __init__(self, queue: Queue, *, wrap: Callable[[Connection], Any] = lambda connection: connection) -> None:
        broker, spec = queue.broker, queue.spec
        self.clock = spec.host_clock
        self._pool, self._wrap = broker.pool, wrap
        self._held: dict[Claim, Connection] = {}
        self._kept: dict[Claim, ExitStack] = {}
        sql = QueueSQL(broker.dialect, spec, grouped=queue.group is not None)
        plan = QueuePlan(sql=sql, columns=spec.columns, lease=30, most=16, group=queue.group)
        self.strategy: Any
        if spec.has(Role.LEASE):
            self.strategy = Lease(plan)
        else:
            self.strategy = RowLock(plan)
        self.by_lease = spec.has(Role.LEASE)

    def claim(self) -> Claim | None:
        """The next row, held until it is settled; None where there is none."""
        with ExitStack() as kept:
            connection = self._wrap(kept.enter_context(self._pool.connection()))
            claims = self.strategy.turn(connection, Turn(limit=1, now=self.clock.now())).claims
            if not claims:
                return None
            claim: Claim = claims[0]
            if not self.by_lease:
                self._held[claim], self._kept[claim] = connection, kept.pop_all()
            return claim

    def claim_all(self) -> list[Claim]:
        """Rows, until there are no more."""
        return list(iter(self.claim, None))

    def settle(self, claim: Claim, settlement: Settlement = ACKNOWLEDGE) -> None:
        """End the delivery; the row was held until now, or this fails."""
        with self._kept.pop(claim, None) or ExitStack() as kept:
            connection = self._held.pop(claim, None) or kept.enter_context(self._pool.connection())
            turned = self.strategy.turn(connection, Turn(settlements=[(claim, settlement)], now=self.clock.now()))
            assert (list(turned.lost), list(turned.gone)) == ([], [])

    def look_ahead(self) -> Upcoming:
        with self._pool.connection() as connection:
            ahead: Upcoming = self.strategy.look_ahead(connection, self.clock.now(), held=len(self._held))
            return ahead

    def close(self) -> None:
        """Let all rows go that a connection holds."""
        for claim, kept in self._kept.items():
            with kept:
                self.strategy.let_go(self._held[claim], claim)
        self._kept.clear()
        self._held.clear()


OpenInstance = Callable[..., Instance]


@contextmanager
def instances() -> Iterator[OpenInstance]:
    """Makes instances, which let their rows go at the end."""
    with ExitStack() as stack:

        def open_instance(queue: Queue, **settings: Any) -> Instance:
            instance = Instance(queue, **settings)
            stack.callback(instance.close)
            return instance

        yield open_instance


def taken(queue: Queue, claims: "list[Claim]") -> list[Any]:
    """What the rows' payloads say, in the order in which they were claimed."""
    columns = [column.field for column in queue.spec.columns]
    at = columns.index("payload")
    return [int(claim.row[at]) for claim in claims]


def filled(database: Database, many: int, account: str, due_at: str = "NULL") -> None:
    """Fill `line_jobs` with rows whose columns are these expressions over `number`."""
    database.execute(fill(FILL, {"many": str(many), "account": account, "due_at": due_at}))


class OnLines(Contract):
    """The fixtures of tests on lines: by lease."""

    def declared_for(self, declared: "type | TableSpec") -> TableSpec:
        """A table with a lease, as it is tried."""
        return spec_of(declared)

    @pytest.fixture
    def declare(self) -> Declare:
        return self.declared_for

    @pytest.fixture
    def open_instance(self, broker: Broker) -> Iterator[OpenInstance]:
        with instances() as open_instance:
            yield open_instance


class ByRowLock:
    """The same by row lock."""

    def declared_for(self, declared: "type | TableSpec") -> TableSpec:
        return by_row_lock(declared)
