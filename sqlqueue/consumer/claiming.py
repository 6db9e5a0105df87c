"""Which strategy a queue's declaration asks for, and whether its database serves it."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from sqlqueue.column import Role
from sqlqueue.dialect import ColumnFacts, Dialect, Pool
from sqlqueue.errors import Unsupported
from sqlqueue.handler import Handler
from sqlqueue.queue import Queue
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Begin
from sqlqueue.strategies.advisory import Advisory
from sqlqueue.strategies.base import Seated
from sqlqueue.strategies.by_function import ByFunction
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.leaving import Leaving
from sqlqueue.strategies.row_lock import RowLock
from sqlqueue.strategies.stepping import RESUMED, shape_of
from sqlqueue.strategies.together import Together
from sqlqueue.words import Words

L = TypeVar("L", bound=Lease)


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


def lease_for(
    make: type[L],
    queue: Queue,
    handler: Handler,
    columns: Sequence[ColumnSpec],
    facts: Mapping[str, ColumnFacts],
    *,
    most: int = 1,
) -> L:
    """The lease strategy: `Lease` for the pump, `SeatedLease` for a transactional handler."""
    lease, payload = queue.spec.role(Role.LEASE), queue.spec.role(Role.PAYLOAD)
    assert lease is not None
    words, shape, cap = words_of(queue), None, handler.max_attempts
    if handler.stepping is not None and payload is not None:
        shape = shape_of(words, handler.stepping, partial(words.dialect.assigned, payload, facts[payload.name]))
        cap = RESUMED
    return make(
        words,
        columns=columns,
        seconds=handler.lease,
        most=most,
        cap=cap,
        group=queue.group,
        precision=facts[lease.name].precision,
        by_key=in_order_here(queue, handler),
        leaving=leaving_for(queue, handler, columns),
        shape=shape,
    )


def handlers_begin(queue: Queue, handler: Handler) -> Begin | None:
    """What opens the transaction of a transactional handler; None where the claim's own is that."""
    spec = queue.spec
    if spec.advisory_lock is None and not spec.has(Role.LEASE):
        return None
    return Begin(spec.isolation.upper()) if spec.isolation else Begin()


def seated_for(queue: Queue, handler: Handler, columns: Sequence[ColumnSpec], pool: Pool) -> Seated:
    """The strategy of a queue whose deliveries hold their connection."""
    words, lock, most = words_of(queue), queue.spec.advisory_lock, handler.batch or 1
    common: dict[str, Any] = {
        "columns": columns,
        "cap": handler.max_attempts,
        "group": queue.group,
        "by_key": in_order_here(queue, handler),
        "leaving": leaving_for(queue, handler, columns),
    }
    if lock is None:
        return RowLock(words, most=most, **common)
    if lock.lock is not None and lock.unlock is not None:
        return ByFunction(words, lock=lock.lock, unlock=lock.unlock, held=handler.workers * most, **common)
    locks = pool.key_locks
    if locks is None:
        return Advisory(words, most=most, **common)
    locks.open()
    by_function = ByFunction(
        words,
        lock=lambda _, key: locks.try_lock(key),
        unlock=lambda _, key: locks.unlock(key),
        held=handler.workers * most,
        **common,
    )
    return by_function if handler.transactional else Together(by_function)


def leaving_for(queue: Queue, handler: Handler, columns: Sequence[ColumnSpec]) -> Leaving | None:
    """How rows become dead letters; None where they have no place to go."""
    if handler.dead_letter is None:
        return None
    return Leaving(
        words_of(queue),
        handler.dead_letter,
        columns=columns,
        group=queue.group,
        cap=handler.max_attempts,
        notify=queue.broker.notifications(handler.dead_letter),
    )


def in_order_here(queue: Queue, handler: Handler) -> bool:
    """Whether this consumer keeps the order of keys; lines are in order over all of them."""
    return handler.by_key and queue.spec.line is None


def words_of(queue: Queue) -> Words:
    return Words(queue.broker.dialect, queue.spec, grouped=queue.group is not None)
