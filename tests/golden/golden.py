"""Every statement that a strategy or a producer runs, as one reads it; `SQLQUEUE_WRITE_GOLDEN=1` writes anew."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs

from sqlqueue import Broker, DatabaseClock, Queue
from sqlqueue.codec import JsonCodec
from sqlqueue.column import Role
from sqlqueue.producing import RowMaker
from sqlqueue.rows import reader
from sqlqueue.spec import TableSpec, spec_of
from sqlqueue.sql import Statement
from sqlqueue.statements import insert
from sqlqueue.strategies.lease import Lease
from sqlqueue.testing.contract.tables import CountedJob, FullJob, Job, KeyedJob
from sqlqueue.words import Words

WRITE = "SQLQUEUE_WRITE_GOLDEN"


@attrs.frozen
class Case:
    """A declaration whose statements are kept: those of its claims and settlements, or of its producers.

    `cap`: the most attempts, which only a table that counts has.
    """

    name: str
    declared: type | TableSpec
    group: str | None = None
    cap: int | None = None
    by_key: bool = False
    produces: bool = False


def on_database_clock(declared: type) -> TableSpec:
    """The declaration without its lease, which does not go by the database's clock."""
    spec = spec_of(declared)
    columns = [column for column in spec.columns if column.role is not Role.LEASE]
    return TableSpec(name=spec.name, columns=columns, clock=DatabaseClock())


CASES = (
    Case("lease_minimal", Job),
    Case("lease_delayed", CountedJob),
    Case("lease_full", FullJob, group="mail", cap=5),
    Case("lease_by_key", KeyedJob, by_key=True),
    Case("insert", CountedJob, produces=True),
    Case("insert_database_clock", on_database_clock(CountedJob), produces=True),
)


def compare(directory: str, url: str, case: Case) -> None:
    """Fail, with the difference, where the statements are not those of the file."""
    path = Path(__file__).parent / directory / f"{case.name}.sql"
    with Broker(url) as broker:
        queue = broker.queue(case.declared, case.group)
        kept = inserts(queue) if case.produces else statements(queue, case.cap, case.by_key)
        text = "\n".join(f"{statement.text};\n" for statement in kept)
    if os.environ.get(WRITE):
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), f"{WRITE}=1 accepts the change"


def statements(queue: Queue, cap: int | None, by_key: bool) -> Sequence[Statement]:
    dialect, spec = queue.broker.dialect, queue.spec
    lease = Lease(
        Words(dialect, spec, grouped=queue.group is not None),
        columns=reader(dialect, spec, queue.broker.codec, Any).columns,
        seconds=30,
        most=16,
        cap=cap,
        group=queue.group,
        by_key=by_key,
    )
    return lease.statements()


def inserts(queue: Queue) -> Sequence[Statement]:
    """Of one row, of one row that may be there already, and of many."""
    dialect, spec = queue.broker.dialect, queue.spec
    rows = RowMaker(queue=queue.name, spec=spec, group=queue.group, codec=JsonCodec(), dialect=dialect)
    return (
        insert(dialect, spec, rows.columns, delay=rows.delay),
        insert(dialect, spec, rows.columns, delay=rows.delay, ignore=True),
        insert(dialect, spec, rows.columns, returning=False),
    )
