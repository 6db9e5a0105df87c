"""Rows that cannot be read: they never reach a handler, never hold up others, and are never silently deleted."""

import logging
from datetime import timedelta
from typing import Any

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.delivery import Delivery
from sqlqueue.spec import spec_of
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, created, shown
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, Stranger, check_unheld, held_by
from sqlqueue.testing.contract.tables import CountedJob, KeptJob, Order, RawJob
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder

#: Headers that another program may have stored, and that are no JSON object of strings.
BAD_HEADERS = ["7", "[1, 2]", '"text"', '{"trace": 1}', '{"trace": null}', '{"trace": {"id": "1"}}']


#: The table of `Order`, made by somebody to whom its number may be missing.
LOOSE_ORDERS = attrs.evolve(
    spec_of(Order),
    columns=[attrs.evolve(one, optional=one.optional or one.field == "number") for one in spec_of(Order).columns],
)


HOLDS_NO_TRANSACTION = pytest.mark.parametrize("strategy", [LEASE, ADVISORY_LOCK], indirect=True)


@attrs.frozen
class Invoice:
    number: str


class DecodeContract(Contract):
    """A row that does not decode is settled by the decode policy, and the other rows go on."""

    @pytest.mark.parametrize(
        "payload",
        ["", "{", "17", '"A-17"', '{"nr": "A-17"}', '{"number": 17}', "null"],
        ids=lambda text: text or "empty",
    )
    def test_a_payload_that_does_not_decode_is_parked_and_the_next_row_runs(
        self, database: Database, broker: Broker, stranger: Stranger, strategy: str, payload: str
    ) -> None:
        """SUITE 96, SUITE 97"""
        queue = created(broker, held_by(strategy, KeptJob))
        handled = []

        @queue.handler
        def work(invoice: Invoice) -> None:
            handled.append(invoice)

        database.execute("INSERT INTO kept_jobs (payload) VALUES (?)", payload)
        queue.enqueue(Invoice("A-18"))
        drain(broker)
        assert [Invoice("A-18")] == handled
        (bad, good) = shown(database, queue, "error", "attempt", "done_at")
        assert ("Invoice" in bad[0], *bad[1:]) == (True, 1, None)
        assert (good[0], good[2] is not None) == (None, True)
        check_unheld(database, queue, stranger)

    def test_a_missing_payload_is_a_failure_to_decode_unless_the_handler_takes_none(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """SUITE 17"""
        queue = created(broker, held_by(strategy, KeptJob))
        handled: list[Any] = []

        @queue.handler
        def work(message: int) -> None:
            handled.append(message)

        database.execute("INSERT INTO kept_jobs (payload) VALUES (NULL)")
        drain(broker)
        assert handled == []
        ((error,),) = shown(database, queue, "error")
        assert "NULL" in error

    @pytest.mark.parametrize("headers", BAD_HEADERS)
    def test_headers_that_are_no_object_of_strings_keep_even_a_handler_of_raw_bytes_from_running(
        self, database: Database, broker: Broker, strategy: str, headers: str
    ) -> None:
        """SUITE 96, SUITE a"""
        queue = created(broker, held_by(strategy, RawJob))
        handled: list[Any] = []

        @queue.handler
        def work(message: bytes) -> None:
            handled.append(message)

        queue.enqueue(b"bad")
        database.execute("UPDATE raw_jobs SET headers = ?", headers)
        queue.enqueue(b"good", headers={"trace": "1"})
        drain(broker)
        assert handled == [b"good"]
        ((error,),) = shown(database, queue, "error")
        assert "headers" in error

    def test_a_whole_row_that_does_not_decode_is_parked_and_the_next_row_runs(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """SUITE 96: here a column is empty that the declaration fills."""
        created(broker, held_by(strategy, LOOSE_ORDERS))
        queue = broker.queue(held_by(strategy, attrs.evolve(spec_of(Order), row_class=None)))
        handled: list[Any] = []

        @queue.handler
        def work(order: dict[str, Any]) -> None:
            handled.append(order["number"])

        database.execute("INSERT INTO orders (placed_at) VALUES ('2029-12-31 12:00:00+00:00')")
        database.execute("INSERT INTO orders (placed_at, number) VALUES ('2029-12-31 12:00:00+00:00', 'A-18')")
        drain(broker)
        assert handled == ["A-18"]
        ((error,),) = shown(database, queue, "error")
        assert "number" in error

    def test_one_unreadable_row_among_those_of_a_claim_leaves_the_others_alone(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """PAINS 5"""
        queue = created(broker, held_by(strategy, KeptJob))
        handled = []

        @queue.handler(prefetch=9)
        def work(message: int) -> None:
            handled.append(message)

        queue.enqueue_many(range(10))
        database.execute("UPDATE kept_jobs SET payload = 'six' WHERE payload = '6'")
        drain(broker)
        assert handled == [0, 1, 2, 3, 4, 5, 7, 8, 9]
        assert [payload for payload, error in shown(database, queue, "payload", "error") if error] == ["six"]

    def test_an_unreadable_row_is_kept_hidden_and_told_of_where_there_is_no_place_to_park_it(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        stranger: Stranger,
        clock: ManualClock,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """SUITE 97: it is never silently deleted."""
        queue = created(broker, held_by(strategy, CountedJob), clock)
        handled: list[Any] = []

        @queue.handler(max_attempts=1)
        def work(message: int) -> None:
            handled.append(message)

        queue.enqueue("text")
        with caplog.at_level(logging.ERROR, "sqlqueue"):
            drain(broker)
            drain(broker)
        assert handled == []
        due = clock.now() + timedelta(hours=1)
        assert [('"text"', due)] == shown(database, queue, "payload", "due_at")
        check_unheld(database, queue, stranger)
        assert [
            record.getMessage().count("hidden") for record in caplog.records if "hidden" in record.getMessage()
        ] == [1]

    def test_a_decode_policy_that_retries_counts_attempts_and_ends_at_the_cap(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock, recorder: Recorder
    ) -> None:
        """SUITE 98, SUITE 99: the attempt is known, and a missing count counts as 0."""
        queue = created(broker, held_by(strategy, KeptJob), clock)
        asked = []

        def later(attempt: int, error: BaseException) -> float:
            asked.append(attempt)
            return 10

        @queue.handler(max_attempts=3, on_decode_error=later)
        def work(message: int) -> None: ...

        database.execute("INSERT INTO kept_jobs (payload, attempt) VALUES ('?', NULL)")
        for _ in range(5):
            drain(broker, recorder)
            clock.advance(10)
        assert asked == [1, 2]
        assert shown(database, queue, "done_at") == [(None,)]
        assert [(event.kind, event.attempt) for event in recorder.of("retried", "parked")] == [
            ("retried", 1),
            ("retried", 2),
            ("parked", 3),
        ]

    @HOLDS_NO_TRANSACTION
    def test_a_row_that_its_own_handler_deleted_is_gone_and_no_failure(
        self, database: Database, broker: Broker, strategy: str, recorder: Recorder, caplog: pytest.LogCaptureFixture
    ) -> None:
        """SUITE 102: under a row lock nobody else can delete it."""
        queue = created(broker, held_by(strategy, KeptJob))

        @queue.handler
        def work(message: Any, delivery: Delivery) -> None:
            database.execute("DELETE FROM kept_jobs WHERE id = ?", delivery.id)

        id = queue.enqueue("x")
        drain(broker, recorder)
        assert [id] == [event.id for event in recorder.of("gone")]
        assert recorder.of("acknowledged", "retried", "lease_lost", "trouble") == []
        assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
