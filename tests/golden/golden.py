"""Every statement that a strategy or a producer runs, as one reads it; `SQLQUEUE_WRITE_GOLDEN=1` writes anew."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from sqlqueue import Broker, DatabaseClock, Queue
from sqlqueue.codec import JsonCodec
from sqlqueue.consumer.subscription import plan_for, sql_of
from sqlqueue.delivery import reader
from sqlqueue.enqueue import RowMaker
from sqlqueue.inspect import Parking
from sqlqueue.relay.records import Records, Unprocessed
from sqlqueue.roles import Role
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.sql import Statement
from sqlqueue.statements import insert
from sqlqueue.steps.catalogue import Catalogue
from sqlqueue.steps.shape import Stepping
from sqlqueue.steps.table import TaskReader, TaskState, noted_in, task_table
from sqlqueue.strategies.advisory import Advisory
from sqlqueue.strategies.claim import Strategy
from sqlqueue.strategies.key_locks import KeyLocked
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.plan import QueuePlan
from sqlqueue.strategies.row_lock import RowLock
from sqlqueue.testing.contract.line_tables import GroupedLineJob, LineGroupJob, LineJob, RankedLineJob
from sqlqueue.testing.contract.tables import (
    CountedJob,
    DeadJob,
    FullJob,
    Job,
    KeptDeadJob,
    KeptJob,
    KeyedJob,
    NotedDeadJob,
    NotedJob,
    RawJob,
    TokenDeadJob,
)
from sqlqueue.testing.contract.tracked import Outbox, ShortOutbox

WRITE = "SQLQUEUE_WRITE_GOLDEN"


@attrs.frozen
class Case:
    """A declaration whose statements are kept: those of its claims and settlements, or of its producers.

    `cap`: the most attempts, which only a table that counts has. `batch`: the most rows of a claim. `strategy`: None
    for the producers. `dead_letter`: for the statements of a move alone, with what a handler's `dead_letter=` names.
    `parked`: for those of parked rows. `records`: for those of a tracked publisher's records, of all names or of some.
    `tasks`: for those of a queue of tasks.
    """

    name: str
    declared: type | TableSpec
    strategy: type[Lease] | type[RowLock] | type[Advisory] | type[KeyLocked] | None = Lease
    group: str | None = None
    cap: int | None = None
    by_key: bool = False
    dead_letter: Any = None
    parked: bool = False
    batch: int = 1
    records: str | None = None
    tasks: Stepping | None = None

    @property
    def locks(self) -> Mapping[str, Any]:
        """What the strategy is made with, beside the plan."""
        return {"lock": has_key, "unlock": has_key} if self.strategy is KeyLocked else {}


def has_key(connection: Any, key: str) -> bool:
    """Another system's lock, which is free."""
    return True


def without_lease(declared: type, **changes: Any) -> TableSpec:
    """The declaration without its lease."""
    spec = spec_of(declared)
    columns = [column for column in spec.columns if column.role is not Role.LEASE]
    return attrs.evolve(spec, columns=columns, row_class=None, **changes)


ON_DATABASE_CLOCK = without_lease(CountedJob, clock=DatabaseClock())

ON_DATABASE_CLOCK_DEAD = attrs.evolve(
    spec_of(DeadJob),
    columns=[column for column in spec_of(DeadJob).columns if column.role is not Role.LEASE],
    row_class=None,
    clock=DatabaseClock(),
)

CASES = (
    Case("lease_minimal", Job),
    Case("lease_delayed", CountedJob),
    Case("lease_full", FullJob, group="mail", cap=5),
    Case("lease_by_key", KeyedJob, by_key=True),
    Case("lease_line_keys", LineJob, cap=5),
    Case("lease_line_keys_full", RankedLineJob),
    Case("lease_line_keys_in_group", GroupedLineJob, group="mail"),
    Case("lease_line_groups", LineGroupJob),
    Case("lease_line_group", LineGroupJob, group="mail"),
    Case("by_function", without_lease(CountedJob, advisory_lock="accounts-{id}"), KeyLocked, cap=5),
    Case("dead_letter_group_lease", FullJob, group="mail", dead_letter="failed"),
    Case("dead_letter_table_lease", FullJob, group="mail", dead_letter=DeadJob),
    Case("dead_letter_table_with_ids", Job, dead_letter=KeptDeadJob),
    Case("dead_letter_table_with_defaults", NotedJob, dead_letter=NotedDeadJob),
    Case("dead_letter_table_with_tokens", Job, dead_letter=TokenDeadJob),
    Case(
        "dead_letter_table_by_function",
        without_lease(FullJob, advisory_lock="accounts-{id}"),
        KeyLocked,
        group="mail",
        dead_letter=DeadJob,
    ),
    Case("parked", FullJob, None, group="mail", parked=True),
    Case("parked_minimal", RawJob, None, parked=True),
    Case("records", Outbox, None, records="all"),
    Case("records_of_names", Outbox, None, records="some"),
    Case("records_minimal", ShortOutbox, None, records="all"),
    Case("tasks", task_table(), tasks=Stepping(updated_at=noted_in(task_table()))),
    Case("tasks_adopted", task_table(), tasks=Stepping(updated_at=noted_in(task_table()), adopt_after=60)),
    Case("insert", CountedJob, None),
    Case("insert_task", task_table(), None),
    Case("insert_database_clock", ON_DATABASE_CLOCK, None),
)

#: Where rows and sessions have locks.
LOCK_CASES = (
    Case("row_lock_minimal", without_lease(Job), RowLock),
    Case("row_lock_delayed", without_lease(CountedJob), RowLock, cap=5),
    Case("row_lock_full", without_lease(FullJob), RowLock, group="mail", cap=5),
    Case("row_lock_by_key", without_lease(KeyedJob), RowLock, by_key=True),
    Case("row_lock_database_clock", ON_DATABASE_CLOCK, RowLock),
    Case("row_lock_line_keys", without_lease(LineJob), RowLock),
    Case("row_lock_line_keys_full", without_lease(RankedLineJob), RowLock),
    Case("row_lock_line_groups", without_lease(LineGroupJob), RowLock),
    Case("dead_letter_group_row_lock", without_lease(FullJob), RowLock, group="mail", dead_letter="failed"),
    Case("dead_letter_table_row_lock", without_lease(FullJob), RowLock, group="mail", dead_letter=DeadJob),
    Case("dead_letter_table_database_clock", ON_DATABASE_CLOCK, RowLock, dead_letter=ON_DATABASE_CLOCK_DEAD),
    Case("advisory_delayed", without_lease(CountedJob, advisory_lock="jobs-{id}"), Advisory),
    Case("row_lock_batch", without_lease(KeptJob), RowLock, cap=5, batch=10),
    Case("advisory_batch", without_lease(KeptJob, advisory_lock="jobs-{id}"), Advisory, cap=5, batch=10),
    Case("advisory_full", without_lease(FullJob, advisory_lock="mail-{account}-{id}"), Advisory, group="mail", cap=5),
)


def compare(directory: str, url: str, case: Case) -> None:
    """Fail, with the difference, where the statements are not those of the file."""
    path = Path(__file__).parent / directory / f"{case.name}.sql"
    with Broker(url) as broker:
        queue = broker.queue(case.declared, case.group)
        kept = statements_of(queue, case)
        text = "\n".join(f"{statement.text};\n" for statement in kept)
    if os.environ.get(WRITE):
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), f"{WRITE}=1 accepts the change"


def statements_of(queue: Queue, case: Case) -> Sequence[Statement]:
    if case.records:
        return of_records(queue, ["mail"] if case.records == "some" else None)
    if case.parked:
        return of_parked_rows(queue)
    if case.tasks:
        return of_tasks(queue, case.tasks)
    if case.strategy is None:
        return inserts(queue)
    everything = strategy_of(queue, case).statements()
    return [one for one in everything if one.name.startswith("move")] if case.dead_letter else everything


def of_parked_rows(queue: Queue) -> Sequence[Statement]:
    """To list them, to put some of them back to work, and to put all of them back."""
    parking = Parking(sql_of(queue), queue=queue.name, group=queue.group)
    listed = parking.listing(reader(queue.broker.dialect, queue.spec, queue.broker.codec, Any))
    return listed, parking.requeue([]).statement, parking.requeue(None).statement


def of_tasks(queue: Queue, stepping: Stepping) -> Sequence[Statement]:
    """To claim and settle them, and to look at them."""
    dialect, words = queue.broker.dialect, sql_of(queue)
    columns = reader(dialect, queue.spec, queue.broker.codec, bytes).columns
    shape = stepping.shape(words, lambda expression: expression)
    strategy = Lease(QueuePlan(sql=words, columns=columns, lease=30, most=16, cap=shape.cap, shape=shape))
    if stepping.adopt_after is not None:
        return [strategy.claim]
    tasks = TaskReader(words, Catalogue([], queue.broker.codec))
    return [*strategy.statements(), tasks.getting(), *(tasks.listing(state) for state in (None, *TaskState))]


def of_records(queue: Queue, names: Sequence[str] | None) -> Sequence[Statement]:
    """To write, find and mark them, to send those again that are unprocessed, and to prune the others."""
    records = Records(queue.broker.dialect, queue.spec, queue.broker.codec)
    unprocessed = Unprocessed(records, names)
    sending = unprocessed.newest, unprocessed.first, unprocessed.next
    if names is not None:
        return sending
    pruning = records.pruning() if queue.spec.has(Role.PROCESSED_AT) else ()
    return records.insert, records.finding, records.marking, *sending, *pruning


def strategy_of(queue: Queue, case: Case) -> Strategy[Any]:
    dialect, spec = queue.broker.dialect, queue.spec
    assert case.strategy is not None
    words, columns = sql_of(queue), reader(dialect, spec, queue.broker.codec, Any).columns
    dead_letters = None
    if case.dead_letter is not None:
        queue.handler(dead_letter=case.dead_letter)(lambda message: None)
        assert queue.registered is not None
        dead_letters = plan_for(queue, queue.registered, columns, 1).dead_letters
    plan = QueuePlan(
        sql=words,
        columns=columns,
        group=queue.group,
        cap=case.cap,
        most=16 if case.strategy is Lease else case.batch,
        by_key=case.by_key,
        lease=30,
        dead_letters=dead_letters,
    )
    return case.strategy(plan, **case.locks)


def inserts(queue: Queue) -> Sequence[Statement]:
    """Of one row, of one row that may be there already, and of many."""
    dialect, spec = queue.broker.dialect, queue.spec
    rows = RowMaker(queue=queue.name, spec=spec, group=queue.group, codec=JsonCodec(), dialect=dialect)
    return (
        insert(dialect, spec, rows.columns, delay=rows.delay),
        insert(dialect, spec, rows.columns, delay=rows.delay, ignore=True),
        insert(dialect, spec, rows.columns, returning=False),
    )
