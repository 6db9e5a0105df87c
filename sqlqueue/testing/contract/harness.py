"""What the suite asks of the database under test, and the tools that its classes share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.clock import Clock
from sqlqueue.delivery import reader
from sqlqueue.destination import Destination
from sqlqueue.outcome import Settlement
from sqlqueue.queue import Queue
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.strategies.claim import Claim, Turn, Turned, Upcoming
from sqlqueue.strategies.dead_letter import DeadLetters
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.plan import QueuePlan
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.holding import ROW_LOCK, SEATED, STRATEGIES, Stranger, stranger_to
from sqlqueue.testing.contract.looking import Database, shown, stored
from sqlqueue.testing.recorder import Recorder

__all__ = ["LIMIT", "NEVER", "Contract", "Database", "Holder", "OpenBroker", "created", "shown", "stored"]

#: Seconds that a test waits at most for what must come.
LIMIT = 10.0

#: Seconds between looks that no test lives to see: what wakes a consumer here is an event.
NEVER = 3600.0

OpenBroker = Callable[..., Broker]


class Contract:
    """The base of the suite's classes. A subclass finds a fixture named `database`, which yields a `Database`."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def recorder(self) -> Recorder:
        return Recorder()

    @pytest.fixture
    def open_broker(self, database: Database) -> Iterator[OpenBroker]:
        """Makes brokers, with settings of one's own, and closes them when the test ends."""
        with ExitStack() as stack:

            def open_broker(**settings: Any) -> Broker:
                return stack.enter_context(Broker(database.url, **{"poll_interval": NEVER, **settings}))

            yield open_broker

    @pytest.fixture
    def broker(self, open_broker: OpenBroker) -> Broker:
        return open_broker()

    @pytest.fixture(params=STRATEGIES)
    def strategy(self, request: pytest.FixtureRequest, broker: Broker) -> str:
        """How rows are held, one strategy after the other; see `held_by`."""
        return _served(request.param, broker)

    @pytest.fixture(params=SEATED)
    def seated(self, request: pytest.FixtureRequest, broker: Broker) -> str:
        """The same, of those by which a delivery holds its connection."""
        return _served(request.param, broker)

    @pytest.fixture
    def stranger(self, open_broker: OpenBroker) -> Iterator[Stranger]:
        with stranger_to(open_broker()) as stranger:
            yield stranger


def _served(strategy: str, broker: Broker) -> str:
    if strategy == ROW_LOCK and not broker.dialect.capabilities.row_locks:
        pytest.skip(f"{broker.dialect.name} has no row locks")
    return strategy


def created(
    broker: Broker, declared: "type | TableSpec", clock: Clock | None = None, group: str | None = None
) -> Queue:
    """The queue on a declared table that is told the time by `clock`; the table is there."""
    spec = spec_of(declared)
    queue = broker.queue(spec if clock is None else attrs.evolve(spec, clock=clock), group)
    broker.create_tables()
    return queue


class Holder:
    """An instance of a service, as the database meets it: the lease strategy, turn by turn, by a clock of its own."""

    def __init__(
        self,
        queue: Queue,
        *,
        seconds: float = 30.0,
        most: int = 10,
        cap: int | None = None,
        precision: int | None = None,
        dead_letter: Destination | None = None,
    ) -> None:
        broker, spec = queue.broker, queue.spec
        sql = QueueSQL(broker.dialect, spec, grouped=queue.group is not None)
        columns = reader(broker.dialect, spec, broker.codec, Any).columns
        dead_letters = (
            DeadLetters(sql, dead_letter, columns=columns, group=queue.group, cap=cap) if dead_letter else None
        )
        self.clock = spec.host_clock
        self.lease = Lease(
            QueuePlan(
                sql=sql,
                columns=columns,
                lease=seconds,
                most=most,
                cap=cap,
                group=queue.group,
                precision=precision,
                dead_letters=dead_letters,
            )
        )
        self._pool = broker.pool

    def claim(self, limit: int = 10, now: datetime | None = None) -> Sequence[Claim]:
        return self.turn([], limit, now).claims

    def settle(self, *settlements: tuple[Claim, Settlement]) -> Turned:
        return self.turn(settlements, 0)

    def turn(self, settlements: Sequence[tuple[Claim, Settlement]], limit: int, now: datetime | None = None) -> Turned:
        with self._pool.connection() as connection:
            turn = Turn(settlements=settlements, limit=limit, now=now or self.clock.now())
            return self.lease.turn(connection, turn)

    def extend(self, *claims: Claim) -> Sequence[Claim]:
        """Those that were lost."""
        with self._pool.connection() as connection:
            return self.lease.extend(connection, claims, self.clock.now())

    def look_ahead(self) -> Upcoming:
        with self._pool.connection() as connection:
            return self.lease.look_ahead(connection, self.clock.now())
