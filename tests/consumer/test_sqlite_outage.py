"""The file is locked or changed under the consumer: it lives, says so, and works on by itself."""

from sqlqueue import Broker
from tests.consumer.helpers import HOUR, Gate, Inbox, insert, jobs, recorded
from tests.support.database import Database


def test_another_program_keeps_the_write_lock_and_the_claim_gives_up_at_its_own_limit(
    sqlite_database: Database,
) -> None:
    """PAINS 12"""
    inbox = Inbox()
    with Broker(sqlite_database.url, poll_interval=HOUR, statement_timeout=0.2) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            insert(sqlite_database, 1)
            assert inbox.next() == 1
            recorder.wait_for("acknowledged")
            mine = sqlite_database.connect()
            mine.execute("BEGIN IMMEDIATE")
            broker.wake(queue)
            troubles = recorder.wait_for("trouble", count=2)
            assert [str(event.detail).partition(":")[0] for event in troubles[:2]] == ["transient"] * 2
            assert not consumer.health().ok
            mine.execute("INSERT INTO jobs (payload, attempt) VALUES (?, 0)", [b"2"])
            mine.execute("COMMIT")
            assert inbox.next() == 2
            recorder.wait_for("recovered")
            assert consumer.health().ok


def test_a_settlement_waits_for_the_write_lock_while_its_lease_lasts(sqlite_database: Database) -> None:
    gate = Gate()
    with Broker(sqlite_database.url, poll_interval=HOUR, statement_timeout=0.1) as broker:
        queue = jobs(broker)
        queue.handler(gate.handle)
        queue.enqueue(1)
        consumer, recorder = recorded(broker)
        with consumer:
            gate.next()
            mine = sqlite_database.connect()
            mine.execute("BEGIN IMMEDIATE")
            gate.open()
            recorder.wait_for("trouble", count=2)
            mine.execute("ROLLBACK")
            recorder.wait_for("acknowledged")
        assert len(gate.deliveries) == 1


def test_a_table_that_is_gone_shows_in_health_and_is_over_when_it_is_back(sqlite_database: Database) -> None:
    inbox = Inbox()
    with Broker(sqlite_database.url, poll_interval=0.05) as broker:
        jobs(broker).handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            recorder.wait_for("looked")
            sqlite_database.execute("ALTER TABLE jobs RENAME TO gone")
            recorder.wait_for("trouble", count=2)
            assert str(consumer.health().queues[0].trouble).startswith("permanent")
            sqlite_database.execute("ALTER TABLE gone RENAME TO jobs")
            insert(sqlite_database, 1)
            assert inbox.next() == 1
            recorder.wait_for("recovered")
