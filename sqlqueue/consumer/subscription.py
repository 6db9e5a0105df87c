"""One queue's handler at work: built when the consumer starts, from the declaration and what the database says."""

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Any

import attrs

from sqlqueue.clock import UTC, HostClock
from sqlqueue.consumer import connection_worker
from sqlqueue.consumer.budget import Budget, Database, budget_of, sorted_by
from sqlqueue.consumer.dispatcher import Dispatcher
from sqlqueue.consumer.health import QueueHealth
from sqlqueue.consumer.in_flight import InFlight, LeaseTimer
from sqlqueue.consumer.polling import PollTimer
from sqlqueue.consumer.replies import replying
from sqlqueue.consumer.run_handler import Call, Runner, caller
from sqlqueue.consumer.transactional import LeaseExtender
from sqlqueue.consumer.worker_group import WorkerGroup
from sqlqueue.consumer.workers import GroupPlan, OnStop, WorkerPool, WorkerThreads
from sqlqueue.delivery import Reader, reader
from sqlqueue.dialect import ColumnFacts, Connection, Dialect, Pool, Waker
from sqlqueue.errors import Unsupported
from sqlqueue.handler import Handler
from sqlqueue.observers import Observer, Observers
from sqlqueue.outcome import Rules
from sqlqueue.queue import Queue, ServedQueue
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
    if spec.has(Role.LEASE) or spec.advisory_lock is not None or dialect.capabilities.row_locks:
        return
    raise Unsupported(
        f"table {spec.full_name!r} in {dialect.source}: the database has no row locks to hold a row by; add a lease "
        "column (locked_until: datetime | None = column.lease()), or hold rows by locks on a key: @table(…, "
        f"advisory_lock='{spec.name}-{{{spec.id.field}}}')"
    )


def plan_for(queue: Queue, handler: Handler, columns: Sequence[ColumnSpec], most: int) -> QueuePlan:
    """What the handler's strategy is made of. `most`: the most rows of one claim."""
    sql, group, cap, to, dead_letters = sql_of(queue), queue.group, handler.max_attempts, handler.dead_letter, None
    if to is not None:
        notify = queue.broker.notifications(to)
        dead_letters = DeadLetters(sql, to, columns=columns, group=group, cap=cap, notify=notify)
    by_key = in_order_here(queue, handler)
    return QueuePlan(
        sql=sql, columns=columns, group=group, cap=cap, most=most, by_key=by_key, dead_letters=dead_letters
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


def in_order_here(queue: Queue, handler: Handler) -> bool:
    """Whether this consumer keeps the order of keys; lines are in order over all of them."""
    return handler.by_key and queue.spec.fifo_column is None


def sql_of(queue: Queue) -> QueueSQL:
    return QueueSQL(queue.broker.dialect, queue.spec, grouped=queue.group is not None)


class Subscription:
    """A queue, its handler, and the dispatcher or the connection workers that work it off."""

    def __init__(
        self, queue: Queue, handler: Handler, observers: Sequence[Observer], wrap: Callable[[str, Call], Call]
    ) -> None:
        check_served(queue.broker.dialect, queue.spec)
        self.queue, self.handler = queue, handler
        self.observers = Observers(queue.name, observers)
        if handler.dead_letter is not None:
            self.observers.dead_lettered = partial(queue.broker.wake, handler.dead_letter)
        self._clock = queue.spec.host_clock
        self._now = partial(datetime.now, UTC) if type(self._clock) is HostClock else self._clock.now
        self._channels = (queue.spec.full_name, *handler.channels)
        self._call = wrap(queue.name, replying(queue, handler, caller(handler)))
        self._pool: WorkerPool | None = None
        self._extender: LeaseExtender | None = None
        self._until_stopped = ExitStack()
        self._stop_asked = False

    @property
    def needs_sessions(self) -> bool:
        """Whether rows are held by locks of the database's sessions."""
        lock = self.queue.spec.advisory_lock
        return lock is not None and lock.lock is None and self.queue.broker.dialect.capabilities.session_locks

    def reserve(self) -> None:
        """Say what it needs of the pool, before anybody takes more of it than he must leave to others."""
        if self.queue.spec.has(Role.LEASE) and not self.handler.transactional:
            self._until_stopped.enter_context(budget_of(self.queue.broker.pool).for_statements())

    def prepare(self, connection: Connection, waker: Waker | None) -> None:
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
            in_flight = InFlight(
                workers=handler.workers, prefetch=handler.prefetch, by_key=by_key, batch=handler.batch or 1
            )
            strategy = leased = Lease(lease_plan_for(self.queue, handler, read.columns, facts, in_flight.capacity))
            pool: WorkerPool = self._dispatcher(leased, in_flight, self._runner(read), waker)
        elif spec.has(Role.LEASE):
            strategy = held = TransactionalLease(lease_plan_for(self.queue, handler, read.columns, facts))
            pool = group = self._worker_group(held, self._runner(read), waker)
            self._extender = self._lease_extender(held, group)
        else:
            strategy = locked = connection_strategy_for(self.queue, handler, read.columns, broker.pool)
            pool = self._worker_group(locked, self._runner(read), waker)
        check_statements(dialect, connection, spec, strategy.statements())
        warn_of_index(dialect, connection, spec, strategy.claim, grouped=self.queue.group is not None)
        warn_of_skew(dialect, connection, spec, handler.lease)
        self._pool = pool
        if self._stop_asked:  # `stop` saw no pool
            pool.stop()

    def _dispatcher(self, strategy: Lease, in_flight: InFlight, runner: Runner, waker: Waker | None) -> Dispatcher:
        handler, name = self.handler, self.queue.name
        return Dispatcher(
            queue=name,
            database=self._database(strategy),
            runner=runner,
            in_flight=in_flight,
            poll_timer=PollTimer(handler.poll_interval),
            lease_timer=LeaseTimer(handler.lease),
            workers=WorkerThreads(name, handler.workers),
            certain=lambda: waker is not None and waker.certain,
            frees_others=self.queue.spec.fifo_column is not None,
        )

    def _worker_group(self, strategy: ConnectionStrategy, runner: Runner, waker: Waker | None) -> WorkerGroup:
        broker, spec, handler, name = self.queue.broker, self.queue.spec, self.handler, self.queue.name
        budget = budget_of(broker.pool)
        by_key, lines = in_order_here(self.queue, handler), spec.fifo_column is not None
        by_row_lock = spec.advisory_lock is None and not spec.has(Role.LEASE)
        one_at_a_time = handler.by_key or lines
        plan = GroupPlan(
            queue=name,
            strategy=strategy,
            budget=budget,
            runner=runner,
            now=self._now,
            classify=sorted_by(broker.dialect.classify),
            most=handler.batch or 1,
            hides=spec.has(Role.RETRY_AFTER) or spec.has(Role.LEASE),
            by_key=by_key,
            one_at_a_time=one_at_a_time,
            settles_first=one_at_a_time or (handler.transactional and not by_row_lock and not self.needs_sessions),
            frees_others=by_key or lines,
            transactional=handler.transactional,
            begin=None if by_row_lock else Begin(spec.isolation.upper()) if spec.isolation else Begin(),
            lease=handler.lease if spec.has(Role.LEASE) else None,
            stops_extending=spec.has(Role.LEASE) and not broker.dialect.capabilities.concurrent_claims,
            waker=waker,
        )
        return WorkerGroup(
            plan,
            PollTimer(handler.poll_interval),
            workers=self._workers(budget),
            work=connection_worker.work,
            give_back=connection_worker.give_back,
        )

    def _lease_extender(self, strategy: TransactionalLease, group: WorkerGroup) -> LeaseExtender | None:
        """Where there is one writer only, nobody can claim while a handler's transaction is open, nor extend: only
        tasks have steps that need none."""
        if group.plan.stops_extending and self.handler.stepping is None:
            return None
        return LeaseExtender(self.queue.name, self._database(strategy), group.rows, self.observers)

    def _database(self, strategy: LeaseStrategy) -> Database:
        broker = self.queue.broker
        classify = sorted_by(broker.dialect.classify)
        return Database(strategy, budget_of(broker.pool), self._now, classify, self.handler.lease)

    def _workers(self, budget: Budget) -> int:
        """How many connection workers there are; handlers that hold the one write lock would only wait for each
        other."""
        name, handler = self.queue.name, self.handler
        most = budget.check_deliveries(name)
        if handler.transactional and not self.queue.broker.dialect.capabilities.concurrent_claims:
            if handler.workers > 1:
                log.warning(
                    "queue %s: the database has one writer, and a transactional handler is it for as long as it runs: "
                    "one of its %d workers runs at a time",
                    name,
                    handler.workers,
                )
            return 1
        if most < handler.workers:
            log.warning(
                "queue %s: each row in work holds a connection, and the pool of %d leaves %d for that, so %d of its %d "
                "workers run at once; raise pool_size",
                *(name, budget.pool.size, most, most, handler.workers),
            )
        return handler.workers

    def _runner(self, read: Reader) -> Runner:
        handler = self.handler
        rules = Rules(
            max_attempts=handler.max_attempts,
            retry=handler.retry,
            on_decode_error=handler.on_decode_error,
            parks=self.queue.spec.has(Role.ERROR),
            dead_letter=handler.dead_letter.name if handler.dead_letter else None,
        )
        make = handler.runner or Runner
        made: Runner = make(
            queue=self.queue.name,
            reader=read,
            rules=rules,
            now=self._now,
            observers=self.observers,
            call=self._call,
            batch=handler.batch is not None,
        )
        return made

    def start(self, executor: ThreadPoolExecutor, on_stop: OnStop) -> None:
        """Start the workers; `on_stop` is told what ends the run."""
        pool, queue = self.pool, self.queue
        served = ServedQueue(
            channels=self._channels, group=queue.group, wake=pool.wake, stop=partial(on_stop, None), let_go=pool.let_go
        )
        self._until_stopped.callback(queue.broker.listen(served))
        watch = getattr(self._clock, "on_change", None)
        forget = watch(pool.wake) if watch is not None else None
        if forget is not None:
            self._until_stopped.callback(forget)
        if self._extender is not None:
            self._until_stopped.callback(self._extender.stop)
            self._extender.start()
        pool.start(executor, on_stop)

    @property
    def pool(self) -> WorkerPool:
        assert self._pool is not None, "prepare() comes first"
        return self._pool

    def stop(self) -> None:
        """Claim no more, also where the start is still under way. Safe in a signal handler."""
        self._stop_asked = True
        if self._pool is not None:
            self._pool.stop()

    def give_up(self) -> None:
        """Give back what is still in work, and end. Safe in a signal handler."""
        if self._pool is not None:
            self._pool.give_up()

    def close(self) -> None:
        """After its end: the pool's connections are for others."""
        self._until_stopped.close()

    def health(self) -> QueueHealth:
        pool = self._pool
        return QueueHealth(
            name=self.queue.name,
            workers=self.handler.workers,
            in_flight=pool.held if pool else 0,
            settled=pool.report.settled if pool else 0,
            trouble=pool.outage.error if pool else None,
        )
