"""Starts on a PostgreSQL server that is not there, says no, or lacks what the consumer needs."""

import signal
import socket
import threading
from collections.abc import Iterator
from time import monotonic
from typing import Any

import psycopg
import pytest

from sqlqueue import Broker, Consumer, DeclarationError, SchemaError, SQLQueueError
from tests.consumer.helpers import HOUR, LIMIT, Inbox, Job, jobs, running, wait_until
from tests.support.children import child
from tests.support.database import Database
from tests.support.postgres import url_of
from tests.support.proxy import Proxy, proxy


@pytest.fixture
def front(postgres_database: Database) -> Iterator[Proxy]:
    """A server that is not there yet, its table made."""
    with Broker(postgres_database.url) as owner:
        jobs(owner)
    with proxy(postgres_database.url, refusing=True) as made:
        yield made


@pytest.fixture
def role(postgres_database: Database) -> Iterator[str]:
    """A role of the test's own that may look at the schema, and do nothing with what is in it."""
    name = f"poor_{postgres_database.name}"
    postgres_database.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
    postgres_database.execute(f"GRANT USAGE ON SCHEMA {postgres_database.name} TO {name}")
    yield name
    postgres_database.execute(f"DROP OWNED BY {name}")
    postgres_database.execute(f"DROP ROLE {name}")


def start(url: str, **options: Any) -> None:
    with Broker(url) as broker:
        broker.queue(Job).handler(Inbox().handle)
        Consumer(broker, **options).start()


def test_a_server_that_never_comes_is_waited_for_and_then_the_drivers_error_is_raised(front: Proxy) -> None:
    before = monotonic()
    with pytest.raises(psycopg.OperationalError, match="Connection refused"):
        start(front.url, startup_timeout=0.5)
    assert 0.5 <= monotonic() - before < 3


def test_a_start_that_may_not_wait_does_not(front: Proxy) -> None:
    before = monotonic()
    with pytest.raises(psycopg.OperationalError, match="Connection refused"):
        start(front.url, startup_timeout=0)
    assert monotonic() - before < 1


def test_a_server_that_comes_late_is_worked_for(front: Proxy) -> None:
    inbox = Inbox()
    with Broker(front.url, poll_interval=HOUR, notify=True) as broker:
        queue = broker.queue(Job)
        queue.handler(inbox.handle)
        consumer = Consumer(broker, startup_timeout=LIMIT)
        timer = threading.Timer(0.5, front.forward)
        timer.start()
        with consumer:
            queue.enqueue(1)
            assert inbox.next() == 1
        timer.join()


def test_a_server_that_falls_silent_while_the_consumer_starts_is_waited_for(front: Proxy) -> None:
    front.forward()
    front.hold()
    url = f"{front.url}&connect_timeout=2"
    with pytest.raises(psycopg.OperationalError, match="timeout"):
        start(url, startup_timeout=0.1)


def test_a_stop_ends_the_wait_for_a_server(front: Proxy) -> None:
    with Broker(front.url) as broker:
        broker.queue(Job).handler(Inbox().handle)
        consumer = Consumer(broker, startup_timeout=HOUR)
        errors: list[BaseException] = []

        def begin() -> None:
            try:
                consumer.start()
            except SQLQueueError as error:
                errors.append(error)

        thread = threading.Thread(target=begin)
        thread.start()
        wait_until(lambda: consumer.health().state == "starting")
        consumer.stop()
        thread.join(LIMIT)
        assert not thread.is_alive()
        assert "stopped while it waited for its server" in str(errors[0])
        assert consumer.health().state == "stopped"


def test_a_stop_ends_run_forever_that_waits_for_a_server(front: Proxy) -> None:
    with Broker(front.url) as broker:
        broker.queue(Job).handler(Inbox().handle)
        consumer = Consumer(broker, startup_timeout=HOUR)
        thread = threading.Thread(target=consumer.run_forever)
        thread.start()
        wait_until(lambda: consumer.health().state == "starting")
        consumer.request_stop()
        thread.join(LIMIT)
        assert not thread.is_alive()


def test_a_signal_ends_a_service_that_waits_for_its_server(front: Proxy) -> None:
    """PAINS 29: with code 0"""
    with child("tests.consumer.service", front.url, startup_timeout=600) as service:
        service.wait_for("log: postgresql:")  # it says that it waits
        service.signal(signal.SIGTERM)
        assert service.exit_code(5) == 0


def test_a_port_where_nobody_listens_is_the_drivers_own_error() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"postgresql://127.0.0.1:{nobody.getsockname()[1]}/shop"
        with pytest.raises(psycopg.OperationalError, match="refused"):
            start(url, startup_timeout=0.1)


def test_an_unknown_database_fails_at_once(postgres_database: Database) -> None:
    before = monotonic()
    with pytest.raises(psycopg.OperationalError, match='database "nowhere" does not exist'):
        start(url_of(postgres_database.url, dbname="nowhere"))
    assert monotonic() - before < 5


def test_a_refused_login_fails_at_once(postgres_database: Database) -> None:
    before = monotonic()
    with pytest.raises(psycopg.OperationalError, match=r'role "nobody_at_all" does not exist|password authentication'):
        start(url_of(postgres_database.url, user="nobody_at_all"))
    assert monotonic() - before < 5


def test_a_url_that_cannot_be_read_is_refused_when_the_broker_is_made() -> None:
    with pytest.raises(DeclarationError, match="cannot be read") as refused:
        Broker("postgresql://me:se@cret@host:port/shop")
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize("missing", ["SELECT", "UPDATE", "DELETE"])
def test_a_missing_privilege_is_told_with_the_statement(postgres_database: Database, role: str, missing: str) -> None:
    with Broker(postgres_database.url) as owner:
        jobs(owner)
    granted = ", ".join({"SELECT", "UPDATE", "DELETE"} - {missing})
    postgres_database.execute(f"GRANT {granted} ON jobs TO {role}")
    before = monotonic()
    with pytest.raises(SchemaError, match=r"the database refuses the statement .*permission denied for table jobs"):
        start(url_of(postgres_database.url, user=role, password="secret"))
    assert monotonic() - before < 5


def test_a_consumer_needs_no_privilege_to_insert(postgres_database: Database, role: str) -> None:
    with Broker(postgres_database.url) as owner:
        jobs(owner).enqueue(1)
    postgres_database.execute(f"GRANT SELECT, UPDATE, DELETE ON jobs TO {role}")
    inbox = Inbox()
    with Broker(url_of(postgres_database.url, user=role, password="secret")) as broker:
        broker.queue(Job).handler(inbox.handle)
        Consumer(broker).run_until_idle(LIMIT)
    assert inbox.next() == 1


def test_a_privilege_revoked_while_it_runs_shows_in_health(postgres_database: Database, role: str) -> None:
    with Broker(postgres_database.url) as owner:
        jobs(owner)
    postgres_database.execute(f"GRANT SELECT, UPDATE, DELETE ON jobs TO {role}")
    inbox = Inbox()
    with Broker(url_of(postgres_database.url, user=role, password="secret"), poll_interval=0.05) as broker:
        broker.queue(Job).handler(inbox.handle)
        with running(Consumer(broker)) as run:
            postgres_database.execute(f"REVOKE UPDATE ON jobs FROM {role}")
            trouble = wait_until(lambda: run.consumer.health().queues[0].trouble)
            assert str(trouble).startswith("permanent: InsufficientPrivilege")
            postgres_database.execute(f"GRANT UPDATE ON jobs TO {role}")
            wait_until(lambda: run.consumer.health().ok)


def test_a_session_that_can_only_read_is_refused(postgres_database: Database) -> None:
    with Broker(postgres_database.url) as owner:
        jobs(owner)
    options = f"-csearch_path={postgres_database.name} -cdefault_transaction_read_only=on"
    with pytest.raises(SchemaError, match="transactions on this connection are read-only"):
        start(url_of(postgres_database.url, options=options))


@pytest.mark.parametrize("what", ["VIEW", "MATERIALIZED VIEW"])
def test_a_view_is_no_queue(postgres_database: Database, what: str) -> None:
    postgres_database.execute(f"CREATE {what} jobs AS SELECT 1 AS id")
    with pytest.raises(SchemaError, match=r"'jobs' is a (materialized )?view"):
        start(postgres_database.url)
