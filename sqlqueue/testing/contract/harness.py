"""What the suite asks of the database under test, and the tools that its classes share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from typing import Any, Protocol

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.clock import Clock, HostClock
from sqlqueue.column import Role
from sqlqueue.queue import Queue
from sqlqueue.rows import reader
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.sql import fill
from sqlqueue.strategies.base import Ahead, Claim, Settlement, Turned
from sqlqueue.strategies.lease import Lease
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.recorder import Recorder
from sqlqueue.words import Words

#: Seconds that a test waits at most for what must come.
LIMIT = 10.0

#: Seconds between looks that no test lives to see: what wakes a consumer here is an event.
NEVER = 3600.0


class Database(Protocol):
    """One test's database, empty at first, seen as another program sees it."""

    @property
    def url(self) -> str:
        """What `sqlqueue.Broker` takes."""
        ...

    def execute(self, sql: str, *params: object) -> Sequence[tuple[Any, ...]]:
        """Run one statement on a connection of its own and commit; its rows. `?` stands for a value."""
        ...

    def connect(self) -> Any:
        """A connection of the driver's own, in autocommit mode, usable from any thread.

        The suite calls `execute(sql)` on it, without values and BEGIN, COMMIT and ROLLBACK among them, hands it to
        `enqueue(connection=…)`, and leaves it open: close it when the test ends.
        """
        ...


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


def created(
    broker: Broker, declared: "type | TableSpec", clock: Clock | None = None, group: str | None = None
) -> Queue:
    """The queue on a declared table that is told the time by `clock`; the table is there."""
    spec = spec_of(declared)
    queue = broker.queue(spec if clock is None else attrs.evolve(spec, clock=clock), group)
    broker.create_tables()
    return queue


# A look into the table, by id.
SHOWN = """
SELECT {columns} FROM {table}
ORDER BY {id}
"""


def shown(database: Database, queue: Queue, *fields: str) -> list[tuple[Any, ...]]:
    """What these fields hold, in every row by id, as another program finds it, moments as aware UTC."""
    dialect, spec = queue.broker.dialect, queue.spec
    columns = {column.field: column for column in spec.columns}
    asked = [columns[field] for field in fields]
    words = Words(dialect, spec, grouped=False)
    sql = fill(
        SHOWN,
        {
            "columns": ", ".join(dialect.read(column, words.qualified(column)) for column in asked),
            "table": dialect.table(spec),
            "id": words.column(Role.ID),
        },
    )
    decoders = [dialect.decoder(column) or _as_it_is for column in asked]
    return [
        tuple(None if value is None else decode(value) for decode, value in zip(decoders, row, strict=True))
        for row in database.execute(sql)
    ]


def stored(queue: Queue, role: Role, value: Any) -> Any:
    """`value` as another program binds it for the column that plays `role`."""
    column = queue.spec.role(role)
    assert column is not None
    encode = queue.broker.dialect.encoder(column) or _as_it_is
    return encode(value)


def _as_it_is(value: Any) -> Any:
    return value


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
    ) -> None:
        broker, spec = queue.broker, queue.spec
        self.clock: Clock = spec.clock if isinstance(spec.clock, Clock) else HostClock()
        self.lease = Lease(
            Words(broker.dialect, spec, grouped=queue.group is not None),
            columns=reader(broker.dialect, spec, broker.codec, Any).columns,
            seconds=seconds,
            most=most,
            cap=cap,
            group=queue.group,
            precision=precision,
        )
        self._pool = broker.pool

    def claim(self, limit: int = 10, now: datetime | None = None) -> Sequence[Claim]:
        return self.turn([], limit, now).claims

    def settle(self, *settlements: tuple[Claim, Settlement]) -> Turned:
        return self.turn(settlements, 0)

    def turn(self, settlements: Sequence[tuple[Claim, Settlement]], limit: int, now: datetime | None = None) -> Turned:
        with self._pool.connection() as connection:
            return self.lease.turn(connection, settlements, limit, now or self.clock.now())

    def extend(self, *claims: Claim) -> Sequence[Claim]:
        """Those that were lost."""
        with self._pool.connection() as connection:
            return self.lease.extend(connection, claims, self.clock.now())

    def look_ahead(self) -> Ahead:
        with self._pool.connection() as connection:
            return self.lease.look_ahead(connection, self.clock.now())
