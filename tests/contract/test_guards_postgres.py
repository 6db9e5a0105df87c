"""Lines where transactions run together: a row that is committed late never comes into work beside another of its line.

Each test takes the steps of several transactions in one fixed order. `A` and `B` are instances, `producer` has inserted
the first row of the line and not committed it.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
from psycopg.conninfo import conninfo_to_dict

from sqlqueue import Broker, Queue
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.sql import Call
from sqlqueue.strategies.claim import Turn
from sqlqueue.testing.contract import created
from sqlqueue.testing.contract.line_instances import Instance, instances
from sqlqueue.testing.contract.line_tables import LineGroupJob, LineJob, by_row_lock
from tests.consumer.helpers import LIMIT, wait_until
from tests.support.database import Database
from tests.support.postgres import url_of

DeclaredFor = Callable[[type], TableSpec]

Rewrite = Callable[[str], str]

BOTH = pytest.mark.parametrize("declared_for", [spec_of, by_row_lock], ids=["lease", "row lock"])

INSERT = "INSERT INTO line_jobs (account, payload, attempt) VALUES ('a', '1', 0)"
# Of this database: others use the server too.
GUARDS = """
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""
WAITING = f"{GUARDS} AND NOT granted AND objid = 4242"


def same(text: str) -> str:
    return text


def unguarded(text: str) -> str:
    """The walk, broken: it goes on without the guard."""
    begin = text.index("pg_try_advisory_xact_lock(")
    end = text.index(" END", begin)
    return f"{text[:begin]}({text[begin:end]} OR TRUE){text[end:]}"


def stopping(text: str) -> str:
    """The walk, stopped behind its snapshot and before its guard until lock 4242 is free."""
    free = "WHEN _next.free THEN"
    assert free in text
    return text.replace(free, "WHEN _next.free AND pg_advisory_xact_lock_shared(4242)::text IS NOT NULL THEN")


@attrs.define
class Rewritten:
    """A connection that sends another walk."""

    inner: Any
    rewrite: Rewrite

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def run(self, calls: Sequence[Call], *, durable: bool = True) -> Any:
        return self.inner.run([self._changed(call) for call in calls], durable=durable)

    def send(self, steps: Sequence[Any]) -> Any:
        return self.inner.send([self._changed(step) if isinstance(step, Call) else step for step in steps])

    def _changed(self, call: Call) -> Call:
        if call.statement.name != "walk the lines":
            return call
        return attrs.evolve(call, statement=attrs.evolve(call.statement, text=self.rewrite(call.statement.text)))


@contextmanager
def claimed(database: Database, queue: Queue) -> Iterator[tuple[int | None, Callable[[], None]]]:
    """What A claims in a transaction that is open, and what ends it: by lease its commit, by row lock an ack."""
    with instances() as open_instance:
        one = open_instance(queue)
        if not one.by_lease:
            claim = one.claim()
            yield (claim.id if claim else None), lambda: one.settle(claim) if claim else None
            return
        driver = database.connect()
        driver.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        adopted = queue.broker.dialect.adopt(driver)
        claims = one.strategy.turn(adopted, Turn(limit=1, now=one.clock.now())).claims
        yield next((claim.id for claim in claims), None), lambda: driver.execute("COMMIT")
        driver.execute("ROLLBACK")  # what is open still


@contextmanager
def instance(queue: Queue, rewrite: Rewrite = same) -> Iterator[Instance]:
    """B, whose walk may be another."""
    with instances() as open_instance:
        yield open_instance(queue, wrap=lambda connection: Rewritten(connection, rewrite))


def claim(instance: Instance) -> int | None:
    """The id of the row that it claims, without waiting for anybody."""
    claimed = instance.claim()
    return None if claimed is None else claimed.id


@pytest.fixture(params=["read committed", "serializable"])
def broker(request: pytest.FixtureRequest, postgres_database: Database) -> Iterator[Broker]:
    """On a server with this default level."""
    options = conninfo_to_dict(postgres_database.url)["options"]
    level = f"-cdefault_transaction_isolation={request.param.replace(' ', chr(92) + ' ')}"
    with Broker(url_of(postgres_database.url, options=f"{options} {level}")) as broker:
        yield broker


@pytest.fixture
def producer(postgres_database: Database) -> Any:
    return postgres_database.connect()


def late(producer: Any, database: Database) -> None:
    """Row 1 is inserted and not committed, row 2 is."""
    producer.execute("BEGIN")
    producer.execute(INSERT)
    database.execute(INSERT)


@BOTH
def test_a_front_that_is_committed_late_waits_for_the_row_in_work(
    postgres_database: Database, broker: Broker, producer: Any, declared_for: DeclaredFor
) -> None:
    """PAINS 18"""
    queue = created(broker, declared_for(LineJob))
    late(producer, postgres_database)
    with claimed(postgres_database, queue) as (front, end), instance(queue) as other:
        assert front == 2
        if other.by_lease:
            end()
        producer.execute("COMMIT")
        assert claim(other) is None
        postgres_database.execute("DELETE FROM line_jobs WHERE id = 2") if other.by_lease else end()
        assert claim(other) == 1
    assert postgres_database.execute(GUARDS) == [(0,)]


@BOTH
@pytest.mark.parametrize(("walk", "second"), [(same, None), (unguarded, 1)], ids=["guarded", "unguarded"])
def test_a_guard_that_another_transaction_holds_keeps_the_line_alone_from_being_claimed(
    postgres_database: Database,
    broker: Broker,
    producer: Any,
    declared_for: DeclaredFor,
    walk: Rewrite,
    second: int | None,
) -> None:
    """PAINS 18, SUITE 61: without it two of a line would be in work, as the broken walk shows."""
    queue = created(broker, declared_for(LineJob))
    late(producer, postgres_database)
    with claimed(postgres_database, queue) as (front, _), instance(queue, walk) as other:
        producer.execute("COMMIT")
        queue.enqueue(3, key="b")
        assert front == 2
        assert [one for one in (claim(other), claim(other)) if one != 3] == [second]


@BOTH
def test_a_line_whose_guard_was_taken_in_vain_is_claimed_once_its_transaction_has_ended(
    postgres_database: Database, broker: Broker, producer: Any, declared_for: DeclaredFor
) -> None:
    """SUITE 61"""
    queue = created(broker, declared_for(LineJob))
    postgres_database.execute(INSERT)
    with instance(queue) as other:
        with claimed(postgres_database, queue) as (front, _):
            assert front == 1
            assert claim(other) is None
        assert claim(other) == 1


@BOTH
def test_a_claim_whose_guard_is_free_again_sees_what_its_former_holder_did(
    postgres_database: Database, broker: Broker, producer: Any, declared_for: DeclaredFor
) -> None:
    """PAINS 18: its walk began while the other claim was open, and its guard is taken after that was committed."""
    queue = created(broker, declared_for(LineJob))
    late(producer, postgres_database)
    gate, found = postgres_database.connect(), []
    gate.execute("SELECT pg_advisory_lock(4242)")
    with claimed(postgres_database, queue) as (front, end), instance(queue, stopping) as other:
        assert front == 2
        thread = threading.Thread(target=lambda: found.append(claim(other)))
        thread.start()
        wait_until(lambda: postgres_database.execute(WAITING) == [(1,)])
        producer.execute("COMMIT")
        end()
        gate.execute("SELECT pg_advisory_unlock(4242)")
        thread.join(LIMIT)
        # The lease is there, in a row that stands before the late one; the acknowledged row is gone.
        assert found == [None if other.by_lease else 1]


@BOTH
def test_queues_of_a_group_and_of_the_whole_table_take_one_guard(
    postgres_database: Database, broker: Broker, declared_for: DeclaredFor
) -> None:
    """SUITE 63"""
    spec = declared_for(LineGroupJob)
    whole, alone = created(broker, spec), created(broker, spec, group="a")
    first = alone.enqueue(1)
    for one, other in ((whole, alone), (alone, whole)):
        with claimed(postgres_database, one) as (front, _), instance(other) as second:
            assert (front, claim(second)) == (first, None)
