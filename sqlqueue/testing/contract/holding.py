"""How rows are held while they are in work: the suite's tables, declared for each strategy, and strangers who look."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import attrs

from sqlqueue.broker import Broker
from sqlqueue.connection import Session
from sqlqueue.queue import Queue
from sqlqueue.roles import Role
from sqlqueue.spec import AdvisoryLock, TableSpec, spec_of
from sqlqueue.sql import Call, Statement, fill, statement
from sqlqueue.testing.contract.looking import Database, shown

LEASE, ROW_LOCK, ADVISORY_LOCK = "lease", "row_lock", "advisory_lock"

#: The strategies by which a delivery holds its connection.
SEATED = (ROW_LOCK, ADVISORY_LOCK)
STRATEGIES = (LEASE, *SEATED)

# As another program asks: the rows that it could lock now.
UNLOCKED = """
SELECT {id} FROM {table}
ORDER BY {id}
{skip_locked}
"""


def held_by(strategy: str, declared: "type | TableSpec", lock: "str | AdvisoryLock | None" = None) -> TableSpec:
    """A table of the suite, declared for another strategy than the lease.

    By an advisory lock its rows are held by `lock`, or by one on their own id. Without its lease it has no class of its
    own, so that its rows are mappings.
    """
    spec = spec_of(declared)
    if strategy == LEASE:
        return spec
    return attrs.evolve(
        spec,
        columns=[column for column in spec.columns if column.role is not Role.LEASE],
        advisory_lock=(lock or f"{spec.name}-{{id}}") if strategy == ADVISORY_LOCK else None,
        row_class=None,
    )


class Stranger:
    """Another program that takes locks on keys: those of the database's sessions, or those of its pool."""

    def __init__(self, broker: Broker, session: "Session | None") -> None:
        dialect = broker.dialect
        self._session, self._locks = session, broker.pool.key_locks
        self._lock: Statement | None = None
        if session is not None:
            number = dialect.number_of(":key")
            self._lock, self._unlock = (
                statement(
                    name, "SELECT {took} AS took", {"took": took(number)}, placeholder=dialect.placeholder, width=1
                )
                for name, took in (("lock", dialect.try_lock), ("unlock", dialect.unlock))
            )

    def lock(self, key: str) -> bool:
        """Take the lock on the key's whole text, without waiting."""
        if self._session is None:
            assert self._locks is not None
            return self._locks.try_lock(key)
        assert self._lock is not None
        return bool(self._session.send([Call(self._lock, {"key": key})])[0][0][0])

    def unlock(self, key: str) -> bool:
        """Let it go; False where it is not the stranger's."""
        if self._session is None:
            assert self._locks is not None
            return self._locks.unlock(key)
        return bool(self._session.send([Call(self._unlock, {"key": key})])[0][0][0])

    def finds_free(self, *keys: str) -> Sequence[str]:
        """Those of the keys that nobody holds; the stranger holds none of them."""
        return [key for key in keys if self.lock(key) and self.unlock(key)]


@contextmanager
def stranger_to(broker: Broker) -> Iterator[Stranger]:
    """A stranger with a broker of its own, which is not the consumer's."""
    if not broker.dialect.capabilities.session_locks:
        yield Stranger(broker, None)
        return
    with broker.pool.connection() as session:
        yield Stranger(broker, cast("Session", session))  # pools lend them where sessions have locks


def key_of(queue: Queue, text: str) -> str:
    """The whole key that a row's own text stands for, on a table whose keys are not shared."""
    return f"{queue.spec.full_name}:{text}"


def unlocked(database: Database, queue: Queue) -> list[Any]:
    """The ids of the rows that nobody has locked."""
    dialect, spec = queue.broker.dialect, queue.spec
    sql = fill(
        UNLOCKED,
        {"id": dialect.quote(spec.id.name), "table": dialect.table(spec), "skip_locked": dialect.skip_locked},
    )
    return [id for (id,) in database.execute(sql)]


def check_unheld(database: Database, queue: Queue, stranger: Stranger) -> None:
    """Fail where anybody holds one of the rows, whatever the strategy."""
    ids = [id for (id,) in shown(database, queue, "id")]
    assert unlocked(database, queue) == ids
    if queue.spec.has(Role.LEASE):
        assert {lease for (lease,) in shown(database, queue, "locked_until")} <= {None}
    elif queue.spec.advisory_lock is not None:
        keys = [key_of(queue, f"{queue.spec.name}-{id}") for id in ids]
        assert stranger.finds_free(*keys) == keys
