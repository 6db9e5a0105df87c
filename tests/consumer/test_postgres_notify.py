"""With `notify=True` a row runs when its writer says so, whoever that is."""

from queue import Empty

import pytest
from psycopg.errors import InsufficientPrivilege

from sqlqueue import Broker, Consumer, DeclarationError
from tests.consumer.helpers import HOUR, INSERT_MAIL, Inbox, Job, Mail, jobs, recorded, running, wait_idle, wait_until
from tests.consumer.postgres_helpers import Ear, listeners, listening, mail_queues, notify
from tests.support.database import Database
from tests.support.postgres import url_of

# pg_task's: for each row, whatever is done to it.
PER_ROW_TRIGGER = """
CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_notify('jobs', ''); RETURN NULL; END $$;
CREATE TRIGGER tell AFTER INSERT OR UPDATE OR DELETE ON jobs FOR EACH ROW EXECUTE FUNCTION tell();
"""


def test_a_notified_group_runs_and_the_others_stay_asleep(postgres_database: Database) -> None:
    """SUITE 123"""
    with Broker(postgres_database.url, poll_interval=HOUR, notify=True) as broker:
        a, b = mail_queues(broker, postgres_database, "a", "b")
        inboxes = {"a": Inbox(), "b": Inbox()}
        for queue in (a, b):
            # Two, so that a single row is a short claim and its acknowledgement looks for no more.
            queue.handler(workers=2)(inboxes[str(queue.group)].handle)
        consumer, recorder = recorded(broker)
        psql = postgres_database.connect()

        def write(group: str, number: int) -> None:
            with psql.transaction():
                psql.execute("SELECT pg_notify('mails', %s)", [group])
                psql.execute(INSERT_MAIL.replace("?", "%s"), [group, str(number).encode()])
            assert inboxes[group].next() == number

        with consumer:
            listening(postgres_database)
            for number, group in enumerate("ab"):
                write(group, number)
            recorder.wait_for("acknowledged", count=2)
            before = len(recorder.of("looked", queue=b.name))
            for number in range(3):
                write("a", number)
            recorder.wait_for("acknowledged", count=5)
            assert len(recorder.of("looked", queue=b.name)) == before


def test_an_empty_payload_wakes_every_queue_of_the_table(postgres_database: Database) -> None:
    """SUITE 124"""
    inbox = Inbox()
    with Broker(postgres_database.url, poll_interval=HOUR, notify=True) as broker:
        queues = mail_queues(broker, postgres_database, "a", "b")
        for queue in queues:
            queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            listening(postgres_database)
            for queue in queues:
                recorder.wait_for("looked", where=lambda event, name=queue.name: event.queue == name)  # type: ignore[misc]
            recorder.clear()
            postgres_database.execute(INSERT_MAIL, "a", b"1")
            postgres_database.execute(INSERT_MAIL, "b", b"2")
            notify(postgres_database, "mails")
            assert sorted(inbox.some(2)) == [1, 2]


def test_a_foreign_listener_hears_the_table_and_the_group_when_an_enqueue_commits(postgres_database: Database) -> None:
    """SUITE 126"""
    ear = Ear(postgres_database, "mails", "jobs")
    with Broker(postgres_database.url, notify=True) as broker:
        [mails] = mail_queues(broker, postgres_database, "a")
        mine = postgres_database.connect()
        with mine.transaction(force_rollback=True):
            mails.enqueue(0, connection=mine)
        assert ear.heard() == []
        mails.enqueue(1)
        assert ear.heard() == [("mails", "a")]
        mails.enqueue_many([2, 3])
        assert ear.heard() == [("mails", "a")]
        with mine.transaction():
            mails.enqueue(4, connection=mine)
            assert ear.heard() == []
        assert ear.heard() == [("mails", "a")]
        jobs(broker).enqueue(5)
        assert ear.heard() == [("jobs", "")]


def test_without_notify_an_enqueue_sends_nothing(postgres_database: Database) -> None:
    ear = Ear(postgres_database, "jobs")
    with Broker(postgres_database.url) as broker:
        jobs(broker).enqueue(1)
    assert ear.heard() == []


def test_a_group_that_no_notification_can_carry_is_refused_with_notify(postgres_database: Database) -> None:
    """SUITE 127"""
    with Broker(postgres_database.url, notify=True) as broker:
        broker.queue(Mail, group="x" * 7999)
        with pytest.raises(DeclarationError, match="longer than the 7999 bytes of a notification"):
            broker.queue(Mail, group="x" * 8000)
    with Broker(postgres_database.url) as quiet:
        quiet.queue(Mail, group="x" * 8000)


def test_a_notification_that_fails_fails_the_enqueue_and_writes_nothing(postgres_database: Database) -> None:
    """SUITE 127"""
    role = f"mute_{postgres_database.name}"
    with Broker(postgres_database.url) as owner:
        jobs(owner)
    postgres_database.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'secret'")
    postgres_database.execute(f"GRANT USAGE ON SCHEMA {postgres_database.name} TO {role}")
    postgres_database.execute(f"GRANT ALL ON jobs TO {role}")
    postgres_database.execute("REVOKE EXECUTE ON FUNCTION pg_notify FROM PUBLIC")
    try:
        url = url_of(postgres_database.url, user=role, password="secret")
        with Broker(url, notify=True) as broker:
            with pytest.raises(InsufficientPrivilege, match="pg_notify"):
                broker.queue(Job).enqueue(1)
            with pytest.raises(InsufficientPrivilege, match="pg_notify"):
                broker.queue(Job).enqueue_many([2, 3])
        assert postgres_database.execute("SELECT count(*) FROM jobs") == [(0,)]
    finally:
        postgres_database.execute("GRANT EXECUTE ON FUNCTION pg_notify TO PUBLIC")
        postgres_database.execute(f"DROP OWNED BY {role}")
        postgres_database.execute(f"DROP ROLE {role}")


def test_a_group_named_stop_worker_is_refused_with_notify(postgres_database: Database) -> None:
    """SUITE 137"""
    with (
        Broker(postgres_database.url, notify=True) as broker,
        pytest.raises(DeclarationError, match="stop_worker"),
    ):
        broker.queue(Mail, group="stop_worker")


def test_a_row_of_a_group_named_stop_worker_stops_nobody(postgres_database: Database) -> None:
    """SUITE 137"""
    inbox = Inbox()
    with Broker(postgres_database.url, poll_interval=HOUR, notify=True) as broker:
        mails = broker.queue(Mail)
        broker.create_tables()  # with the trigger
        mails.handler(inbox.handle)
        with running(Consumer(broker)) as run:
            listening(postgres_database)
            postgres_database.execute(INSERT_MAIL, "stop_worker", b"1")
            mails.enqueue(Mail(group="stop_worker", locked_until=None, payload=b"2"))
            assert sorted(inbox.some(2)) == [1, 2]
            assert not run.ended(0.2)


def test_stop_worker_stops_every_consumer_of_the_table_within_a_second(postgres_database: Database) -> None:
    """SUITE 136"""
    with (
        Broker(postgres_database.url, poll_interval=HOUR, notify=True) as one,
        Broker(postgres_database.url, poll_interval=HOUR, notify=True) as two,
        Broker(postgres_database.url, poll_interval=HOUR, notify=True) as other,
    ):
        jobs(one).handler(Inbox().handle)
        jobs(two).handler(Inbox().handle)
        other.queue(Mail).handler(Inbox().handle)
        other.create_tables()
        with running(Consumer(one)) as first, running(Consumer(two)) as second, running(Consumer(other)) as third:
            wait_until(lambda: len(listeners(postgres_database)) == 3)
            notify(postgres_database, "jobs", "stop_worker")
            assert first.ended(1)
            assert second.ended(1)
            assert (first.error, second.error) == (None, None)
            assert not third.ended(0.2)


def test_stop_worker_ends_the_claims_of_a_consumer_that_runs_beside_other_work(postgres_database: Database) -> None:
    """SUITE 136: whoever started it stops it, and sees in its health that it should."""
    inbox = Inbox()
    with Broker(postgres_database.url, poll_interval=HOUR, notify=True) as broker:
        queue = jobs(broker)
        queue.handler(inbox.handle)
        consumer, _ = recorded(broker)
        with consumer:
            listening(postgres_database)
            notify(postgres_database, "jobs", "stop_worker")
            wait_until(lambda: consumer.health().state == "stopping")
            queue.enqueue(1)
            with pytest.raises(Empty):
                inbox.next(0.2)
        assert consumer.health().state == "stopped"


def test_a_trigger_that_fires_for_every_row_and_change_makes_no_loop_of_claims(postgres_database: Database) -> None:
    """SUITE 199"""
    inbox = Inbox()
    with Broker(postgres_database.url) as silent:
        jobs(silent)
    postgres_database.script(PER_ROW_TRIGGER)
    with Broker(postgres_database.url, poll_interval=HOUR, notify=True) as broker:
        broker.queue(Job).handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            listening(postgres_database)
            wait_idle(recorder)
            recorder.clear()
            postgres_database.execute("INSERT INTO jobs (payload) SELECT '1' FROM generate_series(1, 20)")
            assert inbox.some(20) == [1] * 20
            recorder.wait_for("acknowledged", count=20)
            recorder.clear()
            with pytest.raises(AssertionError, match="of 5 events looked"):
                recorder.wait_for("looked", count=5, timeout=0.5)
