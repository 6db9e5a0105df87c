"""Relays to the real brokers are killed, and their connections cut: every event arrives, each order's in the order in
which they were written, and again only what a kill or a cut had interrupted."""

import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from typing import Any

import attrs
import pytest

from sqlqueue import Broker, Queue
from sqlqueue.testing.contract.holding import LEASE
from tests.consumer.helpers import wait_until
from tests.crash.outbox import events_by
from tests.relay.brokers import serving
from tests.relay.target import Arrived, Target, Way
from tests.support.availability import BROKERS, Label, installed, why_not
from tests.support.children import Child, child
from tests.support.database import Database
from tests.support.plugin import params_for

WORKER = "tests.crash.programs.relay_worker"
ORDERS, EVENTS, IN_ONE_TRANSACTION = 500, 10_000, 100
WORKERS, BATCH = 2, 50
KILLS = CUTS = 4
ROLLED_BACK = -1
LIMIT = 60.0  # seconds

#: Seconds after which a publish that was cut off is over, and what a killed relay held is another's.
TIMEOUT, LEASED = 10, 3.0

POSTGRES: tuple[Label, ...] = ("postgres-wheel", "postgres-given")

IN_WORK = "SELECT id FROM {} WHERE locked_until IS NOT NULL"
LEFT = "SELECT count(*) FROM {}"


@attrs.define
class Relays:
    """Two of them, the older one first; what they and their ends tell of events that may come again."""

    database: Database
    table: str
    target: str
    _until_end: ExitStack
    _running: list[Child] = attrs.field(init=False, factory=list)
    _interrupted: set[str] = attrs.field(init=False, factory=set)

    def begin(self) -> None:
        options = {"strategy": LEASE, "workers": WORKERS, "batch": BATCH, "lease": LEASED, "says": ["retried"]}
        self._running.append(
            self._until_end.enter_context(child(WORKER, self.database.url, target=self.target, **options))
        )

    def kill(self) -> None:
        """The older one, which is in the midst of it; another takes its place."""
        victim = self._running.pop(0)
        victim.signal(signal.SIGKILL)
        assert victim.exit_code() == -signal.SIGKILL
        self._note_those_in_work()
        self._hear(victim)
        self.begin()

    def cut(self, way: Way) -> None:
        """Kafka's client sends again by itself, without a word, what was on its way."""
        way.cut(self._note_those_in_work)

    def _note_those_in_work(self) -> None:
        self._interrupted.update(str(row) for (row,) in self.database.execute(IN_WORK.format(self.table)))

    def end(self) -> set[str]:
        """The ids of all events that a kill or a failed publish had interrupted."""
        for relay in self._running:
            relay.stop()
            self._hear(relay)
        return self._interrupted

    def at_work(self) -> bool:
        return bool(self.database.execute(IN_WORK.format(self.table)))

    def _hear(self, ended: Child) -> None:
        self._interrupted.update(line.split()[1] for line in ended.said("retried"))


@attrs.define
class Service:
    """Another program, which writes the events, and between them some that are rolled back."""

    queue: Queue
    database: Database
    written: int = attrs.field(init=False, default=0)

    def write_all(self) -> None:
        connection = self.database.connect()
        for first in range(0, EVENTS, IN_ONE_TRANSACTION):
            numbers = range(first, first + IN_ONE_TRANSACTION)
            self._write(connection, [(ROLLED_BACK, number) for number in numbers[::10]], "ROLLBACK")
            self._write(connection, [(number, number) for number in numbers], "COMMIT")
            self.written += IN_ONE_TRANSACTION

    def _write(self, connection: Any, events: Sequence[tuple[int, int]], ending: str) -> None:
        connection.execute("BEGIN")
        for event, number in events:
            self.queue.enqueue(event, key=f"order-{number % ORDERS}", connection=connection)
        connection.execute(ending)

    def relayed(self) -> int:
        """At least so many."""
        written = self.written
        return written - self.left()

    def left(self) -> int:
        ((count,),) = self.database.execute(LEFT.format(self.queue.name))
        return int(count)


def relay_all(service: Service, relays: Relays, way: Way) -> None:
    """While events are written, and after that, a kill or a cut whenever so many more have been relayed."""
    blows: list[Callable[[], None]] = [relays.kill] * KILLS + [partial(relays.cut, way)] * CUTS
    random.shuffle(blows)
    every = EVENTS // (len(blows) + 1)
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(service.write_all)
        for place, blow in enumerate(blows, 1):
            wait_until(lambda due=place * every: service.relayed() >= due, LIMIT)  # type: ignore[misc]
            wait_until(relays.at_work, LIMIT)
            blow()
        writing.result(LIMIT)
    wait_until(lambda: not service.left(), LIMIT)


def check_arrived(arrived: Sequence[Arrived], interrupted: set[str]) -> None:
    numbers_of: dict[str | None, list[int]] = {}
    for each in arrived:
        numbers_of.setdefault(each.key, []).append(int(each.payload))
    written = {f"order-{order}": list(range(order, EVENTS, ORDERS)) for order in range(ORDERS)}
    assert {key: [number for number, _ in groupby(numbers)] for key, numbers in numbers_of.items()} == written
    assert len({(each.id, each.payload) for each in arrived}) == EVENTS  # an event keeps its id
    assert len({each.id for each in arrived}) == EVENTS  # which is no other's
    repeated = {id for id, times in Counter(each.id for each in arrived).items() if times > 1}
    assert repeated <= interrupted


def check(target: Target, database: Database) -> None:
    with Broker(database.url) as broker, target.way() as way, ExitStack() as until_end:
        queue = broker.queue(events_by(LEASE))
        broker.create_tables()
        relays = Relays(database, queue.name, target.url(port=way.port, timeout=TIMEOUT), until_end)
        for _ in range(2):
            relays.begin()
        relay_all(Service(queue, database), relays, way)
        interrupted = relays.end()
    assert interrupted  # else nothing was tested
    check_arrived(target.arrived(), interrupted)


def cases() -> list[object]:
    """Each broker here from SQLite, and from one PostgreSQL: all of them would take too long."""
    here = [name for name, (module, _) in BROKERS.items() if installed(module)]
    servers = [label for label in POSTGRES if why_not(label) is None] or POSTGRES[:1]
    return [
        pytest.param(name, *source.values, marks=source.marks, id=f"{name}-{source.id}")
        for place, name in enumerate(here)
        for source in (*params_for("sqlite"), *params_for(servers[place % len(servers)]))
    ]


@pytest.mark.sample("kafka-sqlite")
@pytest.mark.parametrize(("name", "database"), cases(), indirect=["database"])
def test_every_event_arrives_in_order_and_again_only_after_a_kill_or_a_cut(name: str, database: Database) -> None:
    """PAINS 1 27

    JetStream keeps what comes again from its consumers, by the message id; there it is the order that is tested.
    """
    with serving(name) as target:
        check(target, database)
