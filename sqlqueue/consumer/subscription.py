"""Which strategy a queue's declaration asks for, and whether its database serves it.

One queue's handler at work: built when the consumer starts, from the declaration and what the database says.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import attrs

from sqlqueue.consumer.budget import Database, budget_of, sorted_by
from sqlqueue.consumer.dispatcher import BatchDispatcherThreads, Dispatcher, DispatcherThreads
from sqlqueue.consumer.health import QueueHealth
from sqlqueue.consumer.in_flight import BatchInFlight, InFlight, hands_for
from sqlqueue.consumer.leases import LeaseExtender, LeaseTimer
from sqlqueue.consumer.polling import PollTimer
from sqlqueue.consumer.replies import replying
from sqlqueue.consumer.run_handler import BatchRunner, Call, Runner, caller
from sqlqueue.consumer.worker_group import Shared, WorkerGroup
from sqlqueue.consumer.workers import OnStop, WorkerPool
from sqlqueue.delivery import Reader, reader
from sqlqueue.dialect import ColumnFacts, Connection, Dialect, Hint, Pool
from sqlqueue.errors import Unsupported
from sqlqueue.handler import Handler
from sqlqueue.observers import Observer, Observers
from sqlqueue.outcome import Rules
from sqlqueue.queue import Queue
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.schema import check_destination, check_statements, check_table, warn_of_index, warn_of_skew
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Begin
from sqlqueue.strategies.advisory import Advisory
from sqlqueue.strategies.claim import ConnectionStrategy, LeaseStrategy, Strategy
from sqlqueue.strategies.dead_letter import DeadLetters
from sqlqueue.strategies.group_commit import GroupCommit
from sqlqueue.strategies.key_locks import KeyLocked, key_locked
from sqlqueue.strategies.lease import Lease, TransactionalLease
from sqlqueue.strategies.plan import QueuePlan
from sqlqueue.strategies.row_lock import RowLock

log = logging.getLogger("sqlqueue")


def check_served(dialect: Dialect, spec: TableSpec) -> None:
    """Raise `Unsupported` for a declaration that this database does not serve."""
    where = f"table {spec.full_name!r} in {dialect.source}"
    if spec.has(Role.LEASE) or spec.advisory_lock is not None or dialect.capabilities.row_locks:
        return
    raise Unsupported(
        f"{where}: the database has no row locks to hold a row by; add a lease column "
        "(locked_until: datetime | None = column.lease()), or hold rows by locks on a key: @table(…, "
        f"advisory_lock='{spec.name}-{{{spec.id.field}}}')"
    )


def plan_for(queue: Queue, handler: Handler, columns: Sequence[ColumnSpec], most: int) -> QueuePlan:
    """What the handler's strategy is made of. `most`: the most rows of one claim."""
    return QueuePlan(
        sql=sql_of(queue),
        columns=columns,
        group=queue.group,
        cap=handler.max_attempts,
        most=most,
        by_key=in_order_here(queue, handler),
        dead_letters=dead_letters_for(queue, handler, columns),
    )


def lease_plan_for(
    queue: Queue, handler: Handler, columns: Sequence[ColumnSpec], facts: Mapping[str, ColumnFacts], most: int = 1
) -> QueuePlan:
    """The same, with the lease and, for tasks, their shape."""
    plan = plan_for(queue, handler, columns, most)
    lease, payload = queue.spec.role(Role.LEASE), queue.spec.role(Role.PAYLOAD)
    assert lease is not None
    plan = attrs.evolve(plan, lease=handler.lease, precision=facts[lease.name].precision)
    if handler.stepping is None or payload is None:
        return plan
    shape = handler.stepping.shape(plan.sql, partial(plan.sql.dialect.assigned, payload, facts[payload.name]))
    return attrs.evolve(plan, shape=shape, cap=shape.cap)


def handlers_begin(queue: Queue, handler: Handler) -> Begin | None:
    """What opens the transaction of a transactional handler; None where the claim's own is that."""
    spec = queue.spec
    if spec.advisory_lock is None and not spec.has(Role.LEASE):
        return None
    return Begin(spec.isolation.upper()) if spec.isolation else Begin()


def connection_strategy_for(
    queue: Queue, handler: Handler, columns: Sequence[ColumnSpec], pool: Pool
) -> ConnectionStrategy:
    """The strategy of a queue whose deliveries hold their connection."""
    plan, advisory = plan_for(queue, handler, columns, handler.batch or 1), queue.spec.advisory_lock
    if advisory is None:
        return RowLock(plan)
    own = attrs.evolve(plan, most=handler.workers * plan.most)
    if advisory.lock is not None and advisory.unlock is not None:
        return KeyLocked(own, lock=advisory.lock, unlock=advisory.unlock)
    locks = pool.key_locks
    if locks is None:
        return Advisory(plan)
    locks.open()
    strategy = key_locked(own, locks)
    return strategy if handler.transactional else GroupCommit(strategy)


def dead_letters_for(queue: Queue, handler: Handler, columns: Sequence[ColumnSpec]) -> DeadLetters | None:
    """How rows become dead letters; None where they have no place to go."""
    if handler.dead_letter is None:
        return None
    return DeadLetters(
        sql_of(queue),
        handler.dead_letter,
        columns=columns,
        group=queue.group,
        cap=handler.max_attempts,
        notify=queue.broker.notifications(handler.dead_letter),
    )


def in_order_here(queue: Queue, handler: Handler) -> bool:
    """Whether this consumer keeps the order of keys; lines are in order over all of them."""
    return handler.by_key and queue.spec.line is None


def sql_of(queue: Queue) -> QueueSQL:
    return QueueSQL(queue.broker.dialect, queue.spec, grouped=queue.group is not None)


class Subscription:
    """A queue, its handler, and the pump or the seats that work it off."""

    def __init__(
        self, queue: Queue, handler: Handler, observers: Sequence[Observer], wrap: Callable[[str, Call], Call]
    ) -> None:
        check_served(queue.broker.dialect, queue.spec)
        self.queue, self.handler = queue, handler
        self.notices = Observers(queue.name, observers)
        if handler.dead_letter is not None:
            self.notices.dead_lettered = partial(queue.broker.wake, handler.dead_letter)
        self._clock = queue.spec.host_clock
        self._call = wrap(queue.name, replying(queue, handler, caller(handler)))
        self._turning: WorkerPool | None = None
        self._until_stopped = ExitStack()

    @property
    def needs_sessions(self) -> bool:
        """Whether rows are held by locks of the database's sessions."""
        lock = self.queue.spec.advisory_lock
        return lock is not None and lock.lock is None and self.queue.broker.dialect.capabilities.session_locks

    # -- start ------------------------------------------------------------------------------------------------

    def reserve(self) -> None:
        """Say what it needs of the pool, before anybody takes more of it than he must leave to others."""
        if self.queue.spec.has(Role.LEASE) and not self.handler.transactional:
            self._until_stopped.enter_context(budget_of(self.queue.broker.pool).for_statements())

    def prepare(self, connection: Connection, certain: Callable[[], bool]) -> None:
        """Check the database against the declaration and build what works the queue off."""
        broker, spec, handler = self.queue.broker, self.queue.spec, self.handler
        dialect = broker.dialect
        facts = check_table(dialect, connection, spec)
        if handler.dead_letter is not None:
            check_destination(dialect, connection, spec, handler.dead_letter)
        read = reader(dialect, spec, broker.codec, handler.kind)
        strategy: Strategy[Any]
        if spec.has(Role.LEASE) and not handler.transactional:
            by_key = in_order_here(self.queue, handler)
            hands = hands_for(handler, by_key=by_key)
            strategy = leased = Lease(lease_plan_for(self.queue, handler, read.columns, facts, hands.capacity))
            turning: WorkerPool = self._pumping(leased, hands, self._make_runner(read), certain)
        elif spec.has(Role.LEASE):
            strategy = held = TransactionalLease(lease_plan_for(self.queue, handler, read.columns, facts))
            turning = self._seats(held, self._make_runner(read), certain)
            turning.keeping = self._keeping(held, turning)
            if turning.keeping is not None:
                self._until_stopped.callback(turning.keeping.stop)
        else:
            strategy = seated = connection_strategy_for(self.queue, handler, read.columns, broker.pool)
            turning = self._seats(seated, self._make_runner(read), certain)
        check_statements(dialect, connection, spec, strategy.statements())
        warn_of_index(dialect, connection, spec, strategy.claim, grouped=self.queue.group is not None)
        warn_of_skew(dialect, connection, spec, handler.lease)
        self._turning = turning

    def _pumping(
        self, strategy: Lease, hands: InFlight, runner: Runner, certain: Callable[[], bool]
    ) -> DispatcherThreads:
        handler, name = self.handler, self.queue.name
        pump = Dispatcher(
            queue=name,
            database=self._database(strategy),
            runner=runner,
            hands=hands,
            pace=PollTimer(handler.poll_interval),
            keeper=LeaseTimer(handler.lease),
            notices=self.notices,
            certain=certain,
            frees_others=self.queue.spec.line is not None,
        )
        if isinstance(hands, BatchInFlight) and isinstance(runner, BatchRunner):
            return BatchDispatcherThreads(pump, hands, runner, queue=name, workers=handler.workers)
        return DispatcherThreads(pump, hands, runner, queue=name, workers=handler.workers)

    def _seats(self, strategy: ConnectionStrategy, runner: Runner, certain: Callable[[], bool]) -> WorkerGroup:
        broker, spec, handler, name = self.queue.broker, self.queue.spec, self.handler, self.queue.name
        budget = budget_of(broker.pool)
        workers = self._workers(budget.check_seats(name))
        by_key, lines = in_order_here(self.queue, handler), spec.line is not None
        lock = spec.role(Role.LEASE) or spec.advisory_lock  # None: row locks
        shared = Shared(
            queue=name,
            strategy=strategy,
            budget=budget,
            now=self._clock.now,
            classify=sorted_by(broker.dialect.classify),
            runner=runner,
            hides=spec.has(Role.RETRY_AFTER) or spec.has(Role.LEASE),
            one_at_a_time=handler.by_key or lines,
            frees_others=by_key or lines,
            certain=certain,
            settles_first=handler.transactional and not (lock is None or self.needs_sessions),
            transactional=handler.transactional,
            lease=handler.lease if spec.has(Role.LEASE) else None,
            one_writer=not broker.dialect.capabilities.concurrent_claims,
            begin=handlers_begin(self.queue, handler),
            by_key=by_key,
            batch=handler.batch or 0,
        )
        return WorkerGroup(shared, PollTimer(handler.poll_interval), workers=workers, by_key=by_key)

    def _keeping(self, strategy: TransactionalLease, seats: WorkerGroup) -> LeaseExtender | None:
        """Where there is one writer only, nobody can claim while a handler's transaction is open, nor extend: only
        tasks have steps that need none."""
        if seats.shared.one_writer and self.handler.stepping is None:
            return None
        database = self._database(strategy)
        return LeaseExtender(self.queue.name, database, seats.in_hand, self.notices)

    def _database(self, strategy: LeaseStrategy) -> Database:
        broker = self.queue.broker
        classify = sorted_by(broker.dialect.classify)
        return Database(strategy, budget_of(broker.pool), self._clock.now, classify, self.handler.lease)

    def _workers(self, most: int) -> int:
        """How many seats there are; handlers that hold the one write lock would only wait for each other."""
        broker, handler = self.queue.broker, self.handler
        if handler.transactional and not broker.dialect.capabilities.concurrent_claims:
            if handler.workers > 1:
                log.warning(
                    "queue %s: the database has one writer, and a transactional handler is it for as long as it runs: "
                    "one of its %d workers runs at a time",
                    self.queue.name,
                    handler.workers,
                )
            return 1
        if most < handler.workers:
            log.warning(
                "queue %s: each row in work holds a connection, and the pool of %d leaves %d for that, so %d of its %d "
                "workers run at once; raise pool_size",
                self.queue.name,
                broker.pool.size,
                most,
                most,
                handler.workers,
            )
        return handler.workers

    def _make_runner(self, read: Reader) -> Runner:
        handler = self.handler
        rules = Rules(
            max_attempts=handler.max_attempts,
            retry=handler.retry,
            on_decode_error=handler.on_decode_error,
            parks=self.queue.spec.has(Role.ERROR),
            dead_letter=handler.dead_letter.name if handler.dead_letter else None,
        )
        make = handler.runner or (Runner if handler.batch is None else BatchRunner)
        made: Runner = make(
            queue=self.queue.name,
            reader=read,
            rules=rules,
            now=self._clock.now,
            notices=self.notices,
            call=self._call,
        )
        return made

    @property
    def turning(self) -> WorkerPool:
        assert self._turning is not None, "prepare() comes first"
        return self._turning

    def start(self, executor: ThreadPoolExecutor, on_stop: OnStop) -> None:
        """Start the workers; `on_stop` is told what ends the run."""
        watch = getattr(self._clock, "on_change", None)
        if watch is not None:
            watch(self.turning.wake)
        self.turning.start(executor, on_stop)

    # -- from other threads -----------------------------------------------------------------------------------

    def hint(self, hint: Hint) -> None:
        """Look now, if the hint is for this queue."""
        if hint.channel not in (None, self.queue.spec.full_name, *self.handler.channels):
            return
        if not hint.payload or self.queue.group is None or hint.payload == self.queue.group:
            self.turning.wake()

    @property
    def stopping(self) -> bool:
        """Whether it claims no more."""
        return self._turning is not None and self._turning.stopping

    def stop(self) -> None:
        if self._turning is not None:
            self._turning.stop()

    def give_up(self) -> None:
        if self._turning is not None:
            self._turning.give_up()

    def let_go(self) -> None:
        """The broker is being closed: hold nothing that its end would take from us."""
        if self._turning is not None:
            self._turning.let_go()

    def join(self, timeout: float) -> bool:
        """Wait until everything in hand is settled or given back; whether it is."""
        return self.turning.join(timeout)

    def running(self, timeout: float) -> int:
        """How many handlers are still at work after `timeout` seconds."""
        return self.turning.running(timeout)

    def close(self) -> None:
        """After its end: the pool's connections are for others."""
        self._until_stopped.close()

    def health(self) -> QueueHealth:
        turning = self._turning
        return QueueHealth(
            name=self.queue.name,
            workers=self.handler.workers,
            in_hand=turning.held if turning else 0,
            settled=turning.report.settled if turning else 0,
            trouble=turning.outage.error if turning else None,
        )
