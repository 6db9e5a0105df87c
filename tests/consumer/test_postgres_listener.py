"""The listener outlives its connections, and where it cannot listen the poll goes on."""

import logging
import threading
from collections.abc import Iterator

import pytest
from psycopg_pool import ConnectionPool

from sqlqueue import Broker, Consumer
from tests.consumer.helpers import HOUR, Inbox, Job, insert, jobs, recorded, running, wait_idle, wait_until
from tests.consumer.postgres_helpers import listeners, listening, terminate
from tests.support.database import Database
from tests.support.postgres import url_of
from tests.support.proxy import Proxy, proxy

SOON = 2.0  # seconds

LISTENER_LOG = "sqlqueue_postgres.waker"


@pytest.fixture
def front(postgres_database: Database) -> Iterator[Proxy]:
    with proxy(postgres_database.url) as made:
        yield made


def test_a_listener_that_is_lost_five_times_keeps_no_row_waiting(postgres_database: Database, front: Proxy) -> None:
    """PAINS 7: once while it connects. The poll is half a minute, each row runs within two seconds."""
    inbox = Inbox()
    with Broker(front.url, poll_interval=30, notify=True) as broker:
        jobs(broker).handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            wait_idle(recorder)
            for number in range(4):
                terminate(postgres_database, listening(postgres_database))
                insert(postgres_database, number)
                assert inbox.next(SOON) == number
            pid = listening(postgres_database)
            front.hold()
            before = front.accepted
            terminate(postgres_database, pid)
            front.wait_for_connection(before + 1)  # it is connecting, and nobody answers
            insert(postgres_database, 5)
            front.forward()  # which ends that connection
            assert inbox.next(SOON) == 5
            wait_until(lambda: listeners(postgres_database))
            assert len(listeners(postgres_database)) == 1


def test_a_listener_that_is_back_wakes_every_queue_once_and_hears_what_comes(postgres_database: Database) -> None:
    """SUITE 128: a row was written and nobody was told."""
    inbox = Inbox()
    with Broker(postgres_database.url) as silent:
        jobs(silent)
    with Broker(postgres_database.url, poll_interval=HOUR, notify=True) as broker:
        queue = broker.queue(Job)
        queue.handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            pid = listening(postgres_database)
            wait_idle(recorder)
            insert(postgres_database, 1)
            assert inbox.empty
            terminate(postgres_database, pid)
            assert inbox.next() == 1
            assert listening(postgres_database) != pid
            with Broker(postgres_database.url, notify=True) as other:
                other.queue(Job).enqueue(2)
            assert inbox.next() == 2
            assert len(listeners(postgres_database)) == 1


def test_a_row_committed_before_the_first_listen_does_not_wait_for_the_poll(
    postgres_database: Database, front: Proxy
) -> None:
    """PAINS 9"""
    inbox = Inbox()
    with Broker(front.url, poll_interval=HOUR, notify=True) as broker:
        jobs(broker).handler(inbox.handle)
        with broker.pool.connection():
            pass  # the one that the consumer will use
        before = front.accepted
        front.hold(after=1)  # the start's probe comes first, then the listener
        consumer, recorder = recorded(broker)
        with consumer:
            wait_idle(recorder)
            front.wait_for_connection(before + 2)
            insert(postgres_database, 1)
            assert inbox.empty
            front.forward()
            assert inbox.next(SOON) == 1


def test_rows_written_while_consumers_come_and_go_never_wait_for_the_poll(postgres_database: Database) -> None:
    """PAINS 9"""
    inbox = Inbox()
    with Broker(postgres_database.url, poll_interval=HOUR, notify=True) as broker:
        jobs(broker).handler(inbox.handle)
        for number in range(10):
            consumer, _ = recorded(broker)
            writer = threading.Thread(target=insert, args=(postgres_database, number))
            writer.start()
            with consumer:
                assert inbox.next(SOON) == number
            writer.join()


def test_no_connection_listens_after_the_stop(postgres_database: Database) -> None:
    """SUITE 129"""
    with ConnectionPool(postgres_database.url, min_size=3, max_size=3, open=True) as pool:
        with Broker(pool, poll_interval=HOUR, notify=True) as broker:
            jobs(broker).handler(Inbox().handle)
            consumer, _ = recorded(broker)
            with consumer:
                listening(postgres_database)
        assert listeners(postgres_database) == []
        lent = [pool.getconn() for _ in range(3)]
        channels = [one.execute("SELECT * FROM pg_listening_channels()").fetchall() for one in lent]
        for one in lent:
            pool.putconn(one)
        assert channels == [[], [], []]


def test_a_stop_beside_a_lost_listener_is_a_clean_exit(postgres_database: Database) -> None:
    """SUITE 134"""
    with Broker(postgres_database.url, poll_interval=HOUR, notify=True) as broker:
        jobs(broker).handler(Inbox().handle)
        with running(Consumer(broker)) as run:
            pid = listening(postgres_database)
            run.consumer.request_stop()
            postgres_database.execute("SELECT pg_terminate_backend(?)", pid)
            assert run.ended(SOON)
        assert run.error is None


class Role:
    """A role of the test's own that may connect so many times."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.name = f"limited_{database.name}"
        database.execute(f"CREATE ROLE {self.name} LOGIN PASSWORD 'secret'")
        database.execute(f"GRANT USAGE ON SCHEMA {database.name} TO {self.name}")
        database.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {database.name} TO {self.name}")
        self.url = url_of(database.url, user=self.name, password="secret")

    def may_connect(self, times: int) -> None:
        self._database.execute(f"ALTER ROLE {self.name} CONNECTION LIMIT {times}")

    def drop(self) -> None:
        self._database.execute(f"DROP OWNED BY {self.name}")
        self._database.execute(f"DROP ROLE {self.name}")


@pytest.fixture
def role(postgres_database: Database) -> Iterator[Role]:
    with Broker(postgres_database.url) as owner:
        jobs(owner)
    made = Role(postgres_database)
    yield made
    made.drop()


@pytest.mark.parametrize("moment", ["at the start", "while it runs"])
def test_a_listener_that_cannot_listen_is_logged_once_and_rows_run_by_polling(
    postgres_database: Database, role: Role, caplog: pytest.LogCaptureFixture, moment: str
) -> None:
    """PAINS 10, SUITE 132 133"""
    inbox = Inbox()
    caplog.set_level(logging.INFO, LISTENER_LOG)
    role.may_connect(1 if moment == "at the start" else 2)
    with Broker(role.url, pool_size=1, poll_interval=0.1, notify=True) as broker:
        broker.queue(Job).handler(inbox.handle)
        consumer, recorder = recorded(broker)
        with consumer:
            if moment == "while it runs":
                pid = listening(postgres_database)
                role.may_connect(1)
                terminate(postgres_database, pid)
            recorder.wait_for("looked", count=12)  # a second or more
            insert(postgres_database, 1)
            assert inbox.next() == 1
            assert consumer.health().ok
            assert listeners(postgres_database) == []
            [trouble] = [record for record in caplog.records if record.name == LISTENER_LOG]
            assert trouble.getMessage().startswith("listening for jobs failed, and is tried again")
            role.may_connect(2)
            listening(postgres_database)
            wait_until(lambda: len(caplog.records) > caplog.records.index(trouble) + 1)
        assert [record.getMessage() for record in caplog.records if record.name == LISTENER_LOG][1:] == [
            "listening for jobs again"
        ]
