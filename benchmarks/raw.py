"""The raw loops: what one would write by hand, and nothing around it.

The lease's is one thread with the statements that sqlqueue sends: settle the last batch and claim the next in one
transaction, decode, call the handler, again. Where a delivery holds its connection, a crew of threads does that, each
with a connection of its own.
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, Protocol

import attrs

from benchmarks.jobs import nothing
from sqlqueue import Queue
from sqlqueue.delivery import reader
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.sql import Statement
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.plan import QueuePlan

LEASE = 30.0


class Loop(Protocol):
    """A raw loop on a connection of its own."""

    def drain(self) -> int:
        """Work until the table has nothing due; how many rows."""
        ...

    def close(self) -> None: ...


class Crew:
    """Loops that work at once, a thread for each, which is there from the first round on."""

    def __init__(self, loops: Sequence[Loop]) -> None:
        self._loops = loops
        self._threads = ThreadPoolExecutor(len(loops), thread_name_prefix="raw")

    def drain(self) -> int:
        return sum(self._threads.map(lambda loop: loop.drain(), self._loops))

    def close(self) -> None:
        self._threads.shutdown()
        for loop in self._loops:
            loop.close()


@attrs.frozen
class Statements:
    """What the lease strategy composes for a queue: the claim from the start of the table, the one that a backlog is
    worked off with (the same, where the dialect has no other), and the acknowledgement."""

    claim: Statement
    onward: Statement
    acknowledge: Statement


def statements(queue: Queue, batch: int) -> Statements:
    dialect, spec = queue.broker.dialect, queue.spec
    columns = reader(dialect, spec, queue.broker.codec, Any).columns
    lease = Lease(QueuePlan(sql=QueueSQL(dialect, spec, grouped=False), columns=columns, lease=LEASE, most=batch))
    by_name = {statement.name: statement for statement in lease.statements()}
    claim = by_name["claim by lease"]
    return Statements(claim, by_name.get("claim by lease, onward", claim), by_name["acknowledge"])


def handle(payload: bytes, decode: Callable[[bytes], Any] = json.loads) -> None:
    nothing(decode(payload))


def text(moment: datetime) -> str:
    """UTC as SQLite's rows hold it."""
    return moment.replace(tzinfo=None).isoformat(" ", "microseconds")
