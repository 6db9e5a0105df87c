"""Handlers that end their delivery's transaction, or close its connection, themselves."""

from collections.abc import Callable
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.outcome import DeadLetter, Drop, Retry
from sqlqueue.testing.contract.harness import Database, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import Stranger, check_unheld, held_by
from sqlqueue.testing.contract.tables import FullJob
from sqlqueue.testing.contract.transactional import WithNotes, write
from sqlqueue.testing.recorder import Recorder

RETURNED = (
    "the handler returned, but it committed or rolled back its delivery's transaction itself (as `with connection:` "
    "does), which is for its outcome to do; nothing was acknowledged"
)
STAYS = "beside that, its delivery's transaction was committed or rolled back before; what was committed is not undone"


class TransactionEndsContract(WithNotes):
    """They are told, nothing is acknowledged, and the row goes by its retry policy."""

    @pytest.mark.parametrize("ending", ["commit", "rollback", "close"])
    def test_a_handler_that_ends_the_transaction_itself_is_caught(
        self, database: Database, broker: Broker, strategy: str, notes: Callable[[], list[str]], ending: str
    ) -> None:
        queue = created(broker, held_by(strategy, FullJob), group="mail")
        errors: list[str] = []

        @queue.handler(transactional=True, retry=lambda attempt, error: errors.append(repr(error)))
        def handle(message: str, delivery: Delivery) -> None:
            write(delivery.connection, message)
            getattr(delivery.connection, ending)()

        queue.enqueue("one")
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("parked", "lease_lost")
        assert recorder.of("acknowledged") == []
        assert len(shown(database, queue, "id")) == 1
        assert notes() == (["one"] if ending == "commit" else [])
        assert "nothing was acknowledged" in errors[0]
        if ending != "close":  # with its connection a row may be lost, which then comes again
            assert len(errors) == 1

    def test_a_handler_that_begins_another_transaction_is_caught(
        self, database: Database, broker: Broker, strategy: str, notes: Callable[[], list[str]]
    ) -> None:
        queue = created(broker, held_by(strategy, FullJob), group="mail")

        @queue.handler(transactional=True, retry=None)
        def handle(message: str, delivery: Delivery) -> None:
            delivery.connection.execute("COMMIT")
            delivery.connection.execute("BEGIN")
            write(delivery.connection, message)

        queue.enqueue("one")
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("parked")
        assert recorder.of("acknowledged") == []
        assert notes() == []
        ((error,),) = shown(database, queue, "error")
        assert error == f"sqlqueue.errors.TransactionError: {RETURNED}"

    def test_a_handler_that_commits_and_writes_on_is_told_what_it_did(
        self, database: Database, broker: Broker, strategy: str, notes: Callable[[], list[str]]
    ) -> None:
        queue = created(broker, held_by(strategy, FullJob), group="mail")

        @queue.handler(transactional=True, retry=None)
        def handle(message: str, delivery: Delivery) -> None:
            write(delivery.connection, "before")
            delivery.connection.commit()
            write(delivery.connection, "behind")

        queue.enqueue("one")
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("parked")
        ((error,),) = shown(database, queue, "error")
        assert error == f"sqlqueue.errors.TransactionError: {RETURNED}"
        assert "before" in notes()

    @pytest.mark.parametrize("further", ["", "begins", "writes"])
    @pytest.mark.parametrize("outcome", [ValueError("no"), DeadLetter("no"), Retry(), Drop("no")], ids=str)
    def test_a_handler_that_commits_and_does_not_return_is_told_that_its_effect_stays(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        stranger: Stranger,
        notes: Callable[[], list[str]],
        caplog: pytest.LogCaptureFixture,
        outcome: Exception,
        further: str,
    ) -> None:
        queue = created(broker, held_by(strategy, FullJob), group="mail")

        @queue.handler(transactional=True, retry=None, max_attempts=1)
        def handle(message: str, delivery: Delivery) -> None:
            write(delivery.connection, "before")
            delivery.connection.execute("COMMIT")
            if further:
                delivery.connection.execute("BEGIN")
            if further == "writes":
                write(delivery.connection, "behind")
            raise outcome

        queue.enqueue("one")
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("parked", "dropped")
        assert notes() == ["before"]
        assert [record.getMessage().count(STAYS) for record in caplog.records].count(1) >= 1
        if not isinstance(outcome, Drop):
            ((error,),) = shown(database, queue, "error")
            assert "no" in error
            assert error.endswith(f"\n{STAYS}")
        assert recorder.of("trouble", "lease_lost") == []
        check_unheld(database, queue, stranger)

    @pytest.mark.parametrize("outcome", [None, Retry(0.01), ValueError("no")], ids=["returns", "retries", "raises"])
    def test_a_row_whose_handler_closes_its_connection_goes_by_its_policy_and_the_others_are_reached(
        self,
        database: Database,
        open_broker: OpenBroker,
        strategy: str,
        stranger: Stranger,
        notes: Callable[[], list[str]],
        outcome: Any,
    ) -> None:
        broker = open_broker(pool_size=2)
        queue = created(broker, held_by(strategy, FullJob), group="mail")
        attempts: list[int | None] = []

        @queue.handler(transactional=True, max_attempts=2, retry=0.01)
        def handle(message: str, delivery: Delivery) -> Any:
            write(delivery.connection, f"{message} {delivery.attempt}")
            if message == "other":
                return None
            attempts.append(delivery.attempt)
            delivery.connection.close()
            if isinstance(outcome, Exception) and not isinstance(outcome, Retry):
                raise outcome
            return outcome

        queue.enqueue("one")
        queue.enqueue("other")
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("parked")
            recorder.wait_for("acknowledged")
        assert attempts == [1, 2]
        assert recorder.of("lease_lost", "trouble") == []
        assert notes() == ["other 1"]
        ((error, attempt),) = [
            (error, attempt) for error, attempt in shown(database, queue, "error", "attempt") if error
        ]
        assert "closed its delivery's connection" in error or outcome is not None
        assert attempt >= 2
        check_unheld(database, queue, stranger)
