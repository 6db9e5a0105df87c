"""Whether a start warns of a missing index, for every strategy and shape of table."""

import logging

import pytest

from sqlqueue import Broker, Queue
from sqlqueue.schema import claim_index, warn_of_index
from sqlqueue.sql import fill
from tests.golden.golden import Case, strategy_of
from tests.support.database import Database

DROP = "DROP INDEX {name}"


def warns(queue: Queue, case: Case, caplog: pytest.LogCaptureFixture) -> bool:
    """Whether the start of a consumer would say that an index is missing."""
    caplog.clear()
    with caplog.at_level(logging.WARNING), queue.broker.pool.connection() as connection:
        grouped, claim = queue.group is not None, strategy_of(queue, case).claim
        warn_of_index(queue.broker.dialect, connection, queue.spec, claim, grouped=grouped)
    return bool(caplog.messages)


def check_warnings(database: Database, names: str, case: Case, caplog: pytest.LogCaptureFixture) -> None:
    """`names`: the SELECT of the names of our indexes."""
    with Broker(database.url) as broker:
        queue = broker.queue(case.declared, case.group)
        broker.create_tables()
        assert not warns(queue, case, caplog)
        needed = claim_index(broker.dialect, queue.spec, grouped=queue.group is not None) is not None
        indexes = [broker.dialect.quote(name) for (name,) in database.execute(names)]
        assert bool(indexes) == needed
    for name in indexes:
        database.execute(fill(DROP, {"name": name}))
    with Broker(database.url) as broker:
        assert warns(broker.queue(case.declared, case.group), case, caplog) == needed
