"""Every statement that a strategy runs, as one reads it; `SQLQUEUE_WRITE_GOLDEN=1` writes the files anew."""

import os
from pathlib import Path
from typing import Any

import attrs

from sqlqueue import Broker, Queue
from sqlqueue.rows import reader
from sqlqueue.strategies.lease import Lease
from sqlqueue.testing.contract.tables import CountedJob, FullJob, Job, KeyedJob
from sqlqueue.words import Words

WRITE = "SQLQUEUE_WRITE_GOLDEN"


@attrs.frozen
class Case:
    """A declaration whose statements are kept. `cap`: the most attempts, which only a table that counts has."""

    name: str
    declared: type
    group: str | None = None
    cap: int | None = None
    by_key: bool = False


CASES = (
    Case("lease_minimal", Job),
    Case("lease_delayed", CountedJob),
    Case("lease_full", FullJob, group="mail", cap=5),
    Case("lease_by_key", KeyedJob, by_key=True),
)


def compare(directory: str, url: str, case: Case) -> None:
    """Fail, with the difference, where the statements are not those of the file."""
    path = Path(__file__).parent / directory / f"{case.name}.sql"
    with Broker(url) as broker:
        text = statements(broker.queue(case.declared, case.group), case.cap, case.by_key)
    if os.environ.get(WRITE):
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), f"{WRITE}=1 accepts the change"


def statements(queue: Queue, cap: int | None, by_key: bool) -> str:
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
    return "\n".join(f"{statement.text};\n" for statement in lease.statements())
