"""Handlers that end their delivery's transaction, or close its connection, themselves."""

from collections.abc import Callable
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.delivery import Delivery
from sqlqueue.outcome import Retry
from sqlqueue.testing.contract.harness import Database, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import Stranger, check_unheld, held_by
from sqlqueue.testing.contract.tables import FullJob
from sqlqueue.testing.contract.transactional import WithNotes, write
from sqlqueue.testing.recorder import Recorder


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
            recorder.wait_for("parked", "lease_lost")
        assert recorder.of("acknowledged") == []
        assert notes() == []

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
