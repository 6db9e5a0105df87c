"""With `notify=True` a dead letter's consumers are told in the transaction that moves it, and so are requeued rows'."""

from datetime import datetime

import pytest

from sqlqueue import Broker, DeadLetter, Queue, column, table
from sqlqueue.testing import drain
from sqlqueue.testing.contract.holding import STRATEGIES, held_by
from sqlqueue.testing.contract.tables import FullJob
from tests.consumer.postgres_helpers import Ear
from tests.support.database import Database


@table("dead_mails")
class DeadMail:
    id: int = column.id(generated=True)
    locked_until: datetime | None = column.lease()
    payload: str = column.payload()


def quiet(broker: Broker, database: Database, strategy: str) -> Queue:
    """A queue whose tables have no triggers, so that only who says so notifies."""
    spec = held_by(strategy, FullJob)
    with Broker(database.url) as silent:
        silent.queue(spec)
        silent.queue(DeadMail)
        silent.create_tables()
    return broker.queue(spec, group="mail")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("place", ["failed", DeadMail], ids=["group", "table"])
def test_a_dead_letter_is_told_of_where_it_goes(
    postgres_database: Database, strategy: str, place: "str | type"
) -> None:
    with Broker(postgres_database.url, notify=True) as broker:
        queue = quiet(broker, postgres_database, strategy)
        queue.handler(dead_letter=place)(lambda message: DeadLetter("no"))
        queue.enqueue_many(range(3))
        ear = Ear(postgres_database, "full_jobs", "dead_mails")
        drain(broker)
        assert set(ear.heard()) == {("full_jobs", "failed") if place == "failed" else ("dead_mails", "")}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_that_are_put_back_are_told_of(postgres_database: Database, strategy: str) -> None:
    with Broker(postgres_database.url, notify=True) as broker:
        queue = quiet(broker, postgres_database, strategy)
        queue.enqueue("x")
        postgres_database.execute("UPDATE full_jobs SET error = 'no'")
        ear = Ear(postgres_database, "full_jobs")
        assert queue.requeue() == 1
        assert ear.heard() == [("full_jobs", "mail")]
