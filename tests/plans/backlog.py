"""A table with many rows that nobody may claim now and ten that are due, and the calls that a consumer makes on it."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from sqlqueue import Broker, Queue, Role
from sqlqueue.consumer.subscription import sql_of
from sqlqueue.delivery import reader
from sqlqueue.destination import Destination
from sqlqueue.inspect import Parking
from sqlqueue.outcome import RELEASE, Move, Settlement
from sqlqueue.sql import Call
from sqlqueue.steps import TaskQueue
from sqlqueue.steps.shape import Stepping
from sqlqueue.steps.table import noted_in
from sqlqueue.strategies.claim import Turn
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.plan import QueuePlan
from sqlqueue.testing import ManualClock
from sqlqueue.testing.contract import Holder, created
from sqlqueue.testing.contract.step_kinds import Count, tasks_on
from sqlqueue.testing.contract.tables import CountedJob, FullJob, KeptJob, RankedJob
from tests.golden.golden import Case, strategy_of
from tests.plans.overheard import Overheard
from tests.support.database import Database

#: Rows that are scheduled ahead, and as many that are processed or parked where the table keeps such.
MANY = 30_000
DUE = 10

#: The declarations, by the shape of their claim: due times; with finished rows kept; with priorities; with all of it.
DECLARED = [CountedJob, KeptJob, RankedJob, FullJob]


def filled(broker: Broker, declared: type, clock: ManualClock) -> Queue:
    """The queue with its backlog; of two groups, where there are groups, and five priorities."""
    queue = created(broker, declared, clock, group="mail" if declared is FullJob else None)
    assert queue.enqueue_many(_rows(queue, MANY)) > MANY
    if queue.group:
        other = broker.queue(queue.spec, "bills")
        other.enqueue_many(_rows(other, MANY // 10))
    return queue


def _rows(queue: Queue, many: int) -> Iterator[Any]:
    assert isinstance(queue.spec.clock, ManualClock)
    now = queue.spec.clock.now()
    for number in range(many):
        yield _row(queue, number, due_at=now + timedelta(hours=1, seconds=number))
    if queue.spec.has(Role.PROCESSED_AT):
        for number in range(many // 2):
            yield _row(queue, number, due_at=now - timedelta(seconds=number), done_at=now)
            yield _row(queue, number, due_at=now - timedelta(seconds=number), error="broken")
    for number in range(DUE):
        yield _row(queue, number, due_at=now - timedelta(seconds=number))


def _row(queue: Queue, number: int, **fields: Any) -> Any:
    if queue.spec.has(Role.PRIORITY):
        fields["priority"] = number % 5
    if queue.group:
        fields |= {"account": f"a{number % 100}", "queue_name": queue.group}
    assert queue.spec.row_class is not None
    return queue.spec.row_class(payload=f'{{"number": {number}}}', **fields)


def filled_with_tasks(broker: Broker, database: Database, clock: ManualClock) -> TaskQueue:
    """Tasks that are parked, as many that wait for their time, and ten that are due."""
    tasks = tasks_on(broker, clock)
    tasks.enqueue_many(Count(number) for number in range(2 * MANY + DUE))
    some = f"id IN (SELECT id FROM pg_task WHERE error IS NULL LIMIT {MANY})"
    database.execute(f"UPDATE pg_task SET error = 'broken' WHERE {some}")
    database.execute(f"UPDATE pg_task SET wakeup_at = '2030-01-01 01:00:00+00:00' WHERE {some}")
    return tasks


def calls_of_a_look_for_tasks(tasks: TaskQueue) -> list[Call]:
    """The same, of a queue of tasks."""
    queue, clock = tasks.queue, tasks.queue.spec.host_clock
    words, columns = sql_of(queue), reader(queue.broker.dialect, queue.spec, queue.broker.codec, bytes).columns
    shape = Stepping(updated_at=noted_in(queue.spec)).shape(words, lambda expression: expression)
    lease = Lease(QueuePlan(sql=words, columns=columns, lease=30, most=16, cap=shape.cap, shape=shape))
    with queue.broker.pool.connection() as connection:
        overheard: Any = Overheard(connection)
        claims = lease.turn(overheard, Turn(limit=16, now=clock.now())).claims
        assert len(claims) == DUE
        lease.look_ahead(overheard, clock.now())
        lease.turn(connection, Turn(settlements=[(claim, RELEASE) for claim in claims], now=clock.now()))
    return list(overheard.calls)


def calls_of_a_look(queue: Queue) -> tuple[Call, Call]:
    """The claim of 16 rows, which finds ten, and the look ahead that follows; as they run, and undone."""
    holder = Holder(queue, most=16, cap=5 if queue.spec.has(Role.ATTEMPT) else None)
    with queue.broker.pool.connection() as connection:
        connection.driver.execute("BEGIN")
        adopted = queue.broker.dialect.adopt(connection.driver)
        assert adopted is not None
        overheard: Any = Overheard(adopted)
        assert len(holder.lease.turn(overheard, Turn(limit=16, now=holder.clock.now())).claims) == DUE
        ahead = holder.lease.look_ahead(overheard, holder.clock.now())
        connection.driver.execute("ROLLBACK")
    assert ahead.due == holder.clock.now() + timedelta(hours=1)
    claim, look = overheard.calls
    return claim, look


def calls_of_dead_letters(queue: Queue, destination: Destination) -> list[Call]:
    """Those that move the ten rows that are due, and the one that puts ten parked rows back to work."""
    holder = Holder(queue, most=16, dead_letter=destination)
    claims = holder.claim(DUE)
    assert len(claims) == DUE
    with queue.broker.pool.connection() as connection:
        overheard: Any = Overheard(connection)
        dead = Settlement(Move.DEAD_LETTER, error="no")
        holder.lease.turn(overheard, Turn(settlements=[(claim, dead) for claim in claims], now=holder.clock.now()))
    parking = Parking(sql_of(queue), queue=queue.name, group=queue.group)
    return [*overheard.calls, parking.requeue(row.id for row in queue.parked(limit=DUE))]


def calls_of_a_connection_worker(queue: Queue, case: Case) -> list[Call]:
    """The claim of a row or of a batch, and the look ahead beside it, of a strategy whose deliveries hold their
    connection."""
    clock = queue.spec.clock
    assert isinstance(clock, ManualClock)
    strategy: Any = strategy_of(queue, case)
    with queue.broker.pool.connection() as connection:
        overheard: Any = Overheard(connection)
        claims = strategy.turn(overheard, Turn(limit=case.batch, now=clock.now())).claims
        assert len(claims) == case.batch
        for claim in claims:
            strategy.let_go(connection, claim)
    with queue.broker.pool.connection() as connection:
        overheard.connection = connection
        strategy.look_ahead(overheard, clock.now())
    return list(overheard.calls)
