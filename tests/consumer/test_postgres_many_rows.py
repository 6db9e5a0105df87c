"""Ten thousand rows in one transaction send at most one notification for each channel and group."""

from sqlqueue import Broker
from tests.consumer.helpers import Mail, jobs
from tests.consumer.postgres_helpers import Ear, mail_queues
from tests.support.database import Database

MANY = 10_000

SERIES = f"""
INSERT INTO mails ("group", payload) SELECT 'g' || n % 3, '1' FROM generate_series(1, {MANY}) AS n
"""


def test_enqueue_many_sends_one_notification(postgres_database: Database) -> None:
    """PAINS 22"""
    ear = Ear(postgres_database, "jobs", "mails")
    with Broker(postgres_database.url, notify=True) as broker:
        [mails] = mail_queues(broker, postgres_database, "a")  # without the trigger
        assert mails.enqueue_many(range(MANY)) == MANY
        assert ear.heard() == [("mails", "a")]
        assert jobs(broker).enqueue_many(range(MANY)) == MANY  # with it
        assert ear.heard() == [("jobs", "")]


def test_many_enqueues_in_one_transaction_send_one_notification_for_each_group(postgres_database: Database) -> None:
    """PAINS 22"""
    ear = Ear(postgres_database, "mails")
    with Broker(postgres_database.url, notify=True) as broker:
        queues = mail_queues(broker, postgres_database, "a", "b")
        mine = postgres_database.connect()
        with mine.transaction():
            for number in range(100):
                for queue in queues:
                    queue.enqueue(number, connection=mine)
                    queue.enqueue_many(range(10), connection=mine)
    assert sorted(ear.heard()) == [("mails", "a"), ("mails", "b")]


def test_the_trigger_sends_one_notification_for_each_group_whoever_inserts(postgres_database: Database) -> None:
    """PAINS 22"""
    ear = Ear(postgres_database, "mails")
    with Broker(postgres_database.url, notify=True) as broker:
        broker.queue(Mail)
        postgres_database.script(broker.ddl(Mail))
    postgres_database.execute(SERIES)
    assert sorted(ear.heard()) == [("mails", "g0"), ("mails", "g1"), ("mails", "g2")]
    psql = postgres_database.connect()
    with psql.transaction():
        for _ in range(3):
            psql.execute(SERIES)
        with psql.cursor().copy('COPY mails ("group", payload) FROM STDIN') as copy:
            for number in range(MANY):
                copy.write_row((f"g{number % 2}", b"1"))
    assert sorted(ear.heard()) == [("mails", "g0"), ("mails", "g1"), ("mails", "g2")]
    postgres_database.execute("UPDATE mails SET payload = '2'")
    postgres_database.execute("DELETE FROM mails")
    assert ear.heard() == []
