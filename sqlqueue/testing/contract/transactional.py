"""Transactional handlers: what they write and where their row goes is one transaction."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.errors import DeclarationError, TransactionError
from sqlqueue.outcome import DeadLetter, Drop, Retry
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import Stranger, check_unheld, held_by
from sqlqueue.testing.contract.tables import CountedJob, FullJob, Job, KeptJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder

CREATE_NOTES = "CREATE TABLE notes (note varchar(40) PRIMARY KEY)"
NOTES = "SELECT note FROM notes ORDER BY note"


def write(connection: Any, note: str) -> None:
    """What a handler writes with the driver's own connection, whichever that is."""
    connection.execute(f"INSERT INTO notes VALUES ('{note}')")  # noqa: S608 - a test's own word


class WithNotes(Contract):
    """A table that handlers write to; the fixture tells what is committed in it."""

    @pytest.fixture
    def notes(self, database: Database) -> Callable[[], list[str]]:
        database.execute(CREATE_NOTES)
        return lambda: [note for (note,) in database.execute(NOTES)]


class TransactionalContract(WithNotes):
    """An acknowledgement commits what the handler wrote; every other outcome undoes it first."""

    def test_what_a_handler_wrote_commits_with_its_acknowledgement(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger, notes: Callable[[], list[str]]
    ) -> None:
        """SUITE 103, 114"""
        queue = created(broker, held_by(strategy, CountedJob))
        seen: list[list[str]] = []

        @queue.handler(transactional=True)
        def handle(message: str, delivery: Delivery) -> None:
            write(delivery.connection, message)
            seen.append(notes())

        queue.enqueue("one")
        queue.enqueue("two")
        drain(broker)
        assert seen == [[], ["one"]]
        assert notes() == ["one", "two"]
        assert shown(database, queue, "id") == []
        check_unheld(database, queue, stranger)

    @pytest.mark.parametrize(
        ("outcome", "raised"),
        [
            *(
                (outcome, raised)
                for outcome in (Retry(), Retry(60.0), Drop("no"), DeadLetter("no"))
                for raised in (0, 1)
            ),
            (ValueError("no"), 1),
        ],
        ids=str,
    )
    def test_every_other_outcome_undoes_it_and_settles_all_the_same(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        stranger: Stranger,
        clock: ManualClock,
        notes: Callable[[], list[str]],
        outcome: Any,
        raised: int,
    ) -> None:
        """SUITE 104, 108"""
        queue = created(broker, held_by(strategy, FullJob), clock, group="mail")

        @queue.handler(transactional=True, retry=60.0)
        def handle(message: str, delivery: Delivery) -> Any:
            write(delivery.connection, message)
            if raised:
                raise outcome
            return outcome

        queue.enqueue("one")
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("retried", "dropped", "parked")
        assert notes() == []
        ((attempt, error, done),) = shown(database, queue, "attempt", "error", "done_at")
        assert attempt == 1
        assert (error is not None) is isinstance(outcome, DeadLetter)
        assert (done is not None) is isinstance(outcome, Drop)
        check_unheld(database, queue, stranger)

    def test_a_retry_counts_and_its_next_delivery_starts_with_a_clean_transaction(
        self, broker: Broker, strategy: str, notes: Callable[[], list[str]]
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob))
        attempts: list[int | None] = []

        @queue.handler(transactional=True)
        def handle(message: str, delivery: Delivery) -> Retry | None:
            write(delivery.connection, message)
            attempts.append(delivery.attempt)
            return Retry() if len(attempts) < 3 else None

        queue.enqueue("one")
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("acknowledged")
        assert attempts == [1, 2, 3]
        assert notes() == ["one"]

    def test_an_enqueue_with_the_deliverys_connection_commits_with_the_acknowledgement_and_wakes(
        self, database: Database, open_broker: OpenBroker, strategy: str
    ) -> None:
        broker = open_broker()
        jobs, mails = created(broker, held_by(strategy, Job)), created(broker, held_by(strategy, CountedJob))
        begun: list[str] = []

        @jobs.handler(transactional=True)
        def handle(message: str, delivery: Delivery) -> Any:
            mails.enqueue(f"for {message}", connection=delivery.connection)
            return None if message == "one" else Drop("no")

        mails.handler(begun.append)
        with Consumer(broker, observers=[recorder := Recorder()]):
            jobs.enqueue("two")
            jobs.enqueue("one")
            recorder.wait_for("acknowledged", count=2)
        assert begun == ["for one"]
        assert shown(database, mails, "id") == []

    def test_so_does_a_requeue(self, open_broker: OpenBroker, strategy: str) -> None:
        broker = open_broker()
        jobs, mails = created(broker, held_by(strategy, Job)), created(broker, held_by(strategy, KeptJob))
        outcomes: list[Any] = [DeadLetter("no"), None]
        mails.handler(lambda message: outcomes.pop(0))

        @jobs.handler(transactional=True)
        def handle(message: str, delivery: Delivery) -> None:
            assert mails.requeue(connection=delivery.connection) == 1

        with Consumer(broker, observers=[recorder := Recorder()]):
            mails.enqueue("x")
            recorder.wait_for("parked")
            recorder.wait_for("looked", where=lambda event: event.queue == mails.name)
            jobs.enqueue("y")
            recorder.wait_for("acknowledged", count=2)

    def test_a_connection_that_is_used_after_the_handler_returned_raises(
        self, broker: Broker, strategy: str, notes: Callable[[], list[str]]
    ) -> None:
        """SUITE 113: for the delivery's own word; what a driver lets us do to its connection is tested beside it."""
        queue = created(broker, held_by(strategy, CountedJob))
        deliveries: list[Delivery] = []
        queue.handler(transactional=True)(lambda message, delivery: deliveries.append(delivery))
        queue.enqueue("one")
        drain(broker)
        with pytest.raises(TransactionError, match="the handler has returned"):
            deliveries[0].connection  # noqa: B018

    def test_a_delivery_of_another_handler_has_no_connection(self, broker: Broker, strategy: str) -> None:
        queue = created(broker, held_by(strategy, CountedJob))
        said: list[str] = []

        @queue.handler
        def handle(message: str, delivery: Delivery) -> None:
            with pytest.raises(TransactionError) as caught:
                delivery.connection  # noqa: B018
            said.append(str(caught.value))

        queue.enqueue("one")
        drain(broker)
        assert said == [
            "only a transactional handler's delivery has a connection: register it with handler(transactional=True)"
        ]

    def test_an_acknowledgement_that_the_database_refuses_undoes_all_and_is_a_failure_of_the_row(
        self, database: Database, broker: Broker, strategy: str, stranger: Stranger, notes: Callable[[], list[str]]
    ) -> None:
        """SUITE 109"""
        queue = created(broker, held_by(strategy, FullJob), group="mail")
        database.execute("CREATE TABLE parents (id integer PRIMARY KEY)")
        database.execute("CREATE TABLE children (parent integer REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)")

        @queue.handler(transactional=True, retry=None)
        def handle(message: str, delivery: Delivery) -> None:
            if broker.dialect.capabilities.watches:  # SQLite asks for it
                delivery.connection.execute("PRAGMA defer_foreign_keys = ON")
            write(delivery.connection, message)
            delivery.connection.execute("INSERT INTO children VALUES (7)")

        with foreign_keys(broker):
            queue.enqueue("one")
            with Consumer(broker, observers=[recorder := Recorder()]):
                recorder.wait_for("parked")
        assert notes() == []
        assert recorder.of("acknowledged") == []
        assert len(shown(database, queue, "error")) == 1
        check_unheld(database, queue, stranger)

    def test_a_declaration_that_cannot_work_is_refused(self, broker: Broker, strategy: str) -> None:
        queue = created(broker, held_by(strategy, Job))
        with pytest.raises(DeclarationError, match="prefetch=3 beside transactional"):
            queue.handler(transactional=True, prefetch=3)(lambda message: None)


@contextmanager
def foreign_keys(broker: Broker) -> Iterator[None]:
    """SQLite looks at foreign keys where a connection asks for that, outside of a transaction."""
    if not broker.dialect.capabilities.watches:
        yield
        return
    with broker.pool.connection() as connection:
        connection.driver.execute("PRAGMA foreign_keys = ON")
    yield
