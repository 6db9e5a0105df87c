"""Dead letters: rows that nobody could handle, moved in one transaction with their settlement."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.clock import UTC
from sqlqueue.outcome import DeadLetter, Retry
from sqlqueue.roles import Role
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, created, shown, stored
from sqlqueue.testing.contract.holding import ADVISORY_LOCK, LEASE, Stranger, check_unheld, held_by
from sqlqueue.testing.contract.tables import (
    LONG_AGO,
    CountedJob,
    DeadJob,
    DeadOrder,
    FullJob,
    KeptDeadJob,
    NotedDeadJob,
    NotedJob,
    Order,
    TokenDeadJob,
)
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder

REASON, SOURCE, ATTEMPTS = "dead-letter-reason", "dead-letter-source", "dead-letter-attempts"

#: Where the rows of `FullJob` may go.
PLACES = pytest.mark.parametrize("place", ["failed", DeadJob], ids=["group", "table"])

#: A row lock's count is rolled back with a lost worker's transaction.
COUNTS_CRASHES = pytest.mark.parametrize("strategy", [LEASE, ADVISORY_LOCK], indirect=True)

#: Rows of one claim, where a claim takes many.
MANY = 10


@attrs.frozen
class Invoice:
    number: str


def broken(message: Any) -> None:
    raise RuntimeError("broken")


def returned(message: Any) -> DeadLetter:
    return DeadLetter("unpaid")


def raised(message: Any) -> None:
    raise DeadLetter("unpaid")


def asking(message: Any) -> Retry:
    return Retry()


def unread(message: Invoice) -> None:
    raise AssertionError("what cannot be read reaches no handler")


class DeadLettersContract(Contract):
    """A row that is not tried again moves to its dead letter, and nothing is left behind."""

    def test_in_another_group_it_is_the_same_row_and_begins_afresh(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        stranger: Stranger,
        clock: ManualClock,
        recorder: Recorder,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """SUITE 86, SUITE 89: without a cap as well."""
        queue = created(broker, held_by(strategy, FullJob), clock, group="mail")
        queue.handler(dead_letter="failed")(returned)
        id = queue.enqueue("x", key="A", priority=3, headers={"trace": "7"})
        drain(broker, recorder)
        headers = {"trace": "7", REASON: "unpaid", SOURCE: "full_jobs[mail]", ATTEMPTS: "1"}
        fields = ("id", "queue_name", "account", "priority", "headers", "payload")
        assert [(id, "failed", "A", 3, headers, '"x"')] == shown(database, queue, *fields)
        assert shown(database, queue, "due_at", "attempt", "done_at", "error", "is_running") == [
            (None, 0, None, None, False)
        ]
        check_unheld(database, queue, stranger)
        assert [id] == [event.id for event in recorder.of("dead_lettered")]
        line = f"queue full_jobs[mail]: row {id} dead_lettered: unpaid (moved to full_jobs[failed])"
        assert line in caplog.messages

    def test_in_another_table_it_is_a_new_row_with_the_same_payload(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        """SUITE 87: columns are matched by role, then by name."""
        queue = created(broker, held_by(strategy, FullJob), clock, group="mail")
        queue.handler(dead_letter=DeadJob)(returned)
        broker.create_tables()
        payload = ' {"number" : "A\\u00fc-17" } '
        queue.enqueue("x", key="A", headers={"trace": "7"})
        database.execute("UPDATE full_jobs SET payload = ?", payload)
        drain(broker)
        assert shown(database, queue, "id") == []
        headers = {"trace": "7", REASON: "unpaid", SOURCE: "full_jobs[mail]", ATTEMPTS: "1"}
        fields = ("again_at", "tries", "held_until", "notes", "body", "account", "state", "remark")
        row = (clock.now(), 0, None, headers, payload, "A", "new", None)
        assert [row] == shown(database, broker.queue(DeadJob), *fields)

    def test_an_id_that_the_other_table_does_not_make_is_kept(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob))
        queue.handler(dead_letter=KeptDeadJob)(returned)
        broker.create_tables()
        database.execute("INSERT INTO counted_jobs (id, payload) VALUES (77, '1')")
        drain(broker)
        assert shown(database, broker.queue(KeptDeadJob), "id", "payload") == [(77, "1")]
        assert shown(database, queue, "id") == []

    @pytest.mark.parametrize("batch", [None, 3], ids=["single", "batch"])
    def test_a_default_that_a_function_makes_is_made_for_each_row(
        self, database: Database, broker: Broker, strategy: str, batch: int | None
    ) -> None:
        queue = created(broker, held_by(strategy, CountedJob))
        queue.handler(dead_letter=TokenDeadJob, batch=batch)(raised)
        broker.create_tables()
        queue.enqueue_many(range(5))
        assert drain(broker).settled == 5
        moved = shown(database, broker.queue(TokenDeadJob), "payload", "token")
        assert sorted(payload for payload, _ in moved) == [str(number) for number in range(5)]
        assert len({token for _, token in moved}) == 5
        assert shown(database, queue, "id") == []

    def test_what_a_row_lacks_and_must_not_lack_there_is_the_default(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        queue = created(broker, held_by(strategy, NotedJob))
        queue.handler(dead_letter=NotedDeadJob)(raised)
        broker.create_tables()
        queue.enqueue_many([1, 2])
        database.execute("UPDATE noted_jobs SET note = 'n', number = 7, token = 'own' WHERE payload = '2'")
        drain(broker)
        fields = ("payload", "note", "number", "token", "noted_at", "more")
        lacking, full = sorted(shown(database, broker.queue(NotedDeadJob), *fields))
        assert (lacking[:3], lacking[3][:2], lacking[4:]) == (("1", "none", -1), "T-", (LONG_AGO, {"nothing": True}))
        assert full == ("2", "n", 7, "own", LONG_AGO, {"nothing": True})
        assert shown(database, queue, "id") == []

    def test_a_row_without_a_payload_goes_by_the_names_of_its_columns(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        queue = created(broker, held_by(strategy, Order))
        queue.handler(dead_letter=DeadOrder)(returned)
        broker.create_tables()
        database.execute("INSERT INTO orders (placed_at, number) VALUES ('2029-12-31 12:00:00+00:00', 'A-17')")
        drain(broker)
        row = ("A-17", datetime(2029, 12, 31, 12, tzinfo=UTC), None)
        assert [row] == shown(database, broker.queue(DeadOrder), "number", "placed_at", "note")

    @PLACES
    @pytest.mark.parametrize(
        ("handle", "options", "reason", "attempts"),
        [
            (returned, {}, "unpaid", "1"),
            (raised, {"max_attempts": 3}, "unpaid", "1"),
            (broken, {"retry": None}, "RuntimeError: broken", "1"),
            (broken, {"max_attempts": 2, "retry": 0}, "RuntimeError: broken", "2"),
            (asking, {"max_attempts": 2}, "asked for a retry in its last attempt (2)", "2"),
            (unread, {}, "Invoice", "1"),
            (unread, {"max_attempts": 2, "on_decode_error": 0}, "Invoice", "2"),
        ],
        ids=["returned", "raised", "gave up", "at the cap", "retry at the cap", "unreadable", "unreadable at the cap"],
    )
    def test_whatever_ends_a_row_moves_it_and_says_why_and_after_how_many_attempts(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        clock: ManualClock,
        place: Any,
        handle: Callable[[Any], Any],
        options: dict[str, Any],
        reason: str,
        attempts: str,
    ) -> None:
        """SUITE 84, SUITE 97, SUITE 98: one transaction, whichever outcome it is."""
        queue = created(broker, held_by(strategy, FullJob), clock, group="mail")
        queue.handler(dead_letter=place, **options)(handle)
        broker.create_tables()
        queue.enqueue("x", headers={"trace": "7"})
        for _ in range(3):
            drain(broker)
            clock.advance(1)
        said, source, count = self._moved(database, broker, place)
        assert (reason in said, source, count) == (True, "full_jobs[mail]", attempts)

    @PLACES
    @COUNTS_CRASHES
    def test_a_row_that_is_spent_when_it_is_claimed_moves_unhandled(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock, place: Any
    ) -> None:
        """PAINS 4: its last worker was lost."""
        queue = created(broker, held_by(strategy, FullJob), clock, group="mail")
        queue.handler(dead_letter=place, max_attempts=2)(unread)
        broker.create_tables()
        queue.enqueue("x")
        database.execute("UPDATE full_jobs SET attempt = 2")
        if strategy == LEASE:
            database.execute("UPDATE full_jobs SET locked_until = ?", stored(queue, Role.LEASE, clock.now()))
        drain(broker)
        assert self._moved(database, broker, place) == (
            "the worker was lost in the last of 2 attempts",
            "full_jobs[mail]",
            "2",
        )

    def _moved(self, database: Database, broker: Broker, place: Any) -> tuple[str, str, str]:
        """What the only row there is says of itself."""
        if place == "failed":
            queue = next(one for one in broker.queues if one.group == "failed")
            ((group, headers),) = shown(database, queue, "queue_name", "headers")
            assert group == "failed"
        else:
            ((headers,),) = shown(database, broker.queue(DeadJob), "notes")
        return headers[REASON], headers[SOURCE], headers[ATTEMPTS]

    @PLACES
    def test_those_of_one_claim_move_together_and_the_others_are_settled_as_they_ended(
        self, database: Database, broker: Broker, strategy: str, place: Any
    ) -> None:
        """PAINS 5"""
        queue = created(broker, held_by(strategy, FullJob), group="mail")
        queue.handler(dead_letter=place)(lambda message: DeadLetter(f"no {message}") if message % 2 else None)
        broker.create_tables()
        queue.enqueue_many(range(MANY))
        drain(broker)
        dead = broker.queue(DeadJob) if place is DeadJob else queue
        field = "notes" if place is DeadJob else "headers"
        rows = shown(database, dead, field, *(() if place is DeadJob else ("done_at",)))
        reasons = {row[0][REASON] for row in rows if row[0]}
        assert reasons == {f"no {number}" for number in range(1, MANY, 2)}
        if place == "failed":
            assert [done is not None for _, done in rows] == [number % 2 == 0 for number in range(MANY)]

    def test_headers_that_cannot_be_read_go_along_as_text(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        queue = created(broker, held_by(strategy, FullJob), group="mail")
        queue.handler(dead_letter="failed")(unread)
        queue.enqueue("x")
        database.execute("UPDATE full_jobs SET headers = '[1, 2]'")
        drain(broker)
        ((headers,),) = shown(database, queue, "headers")
        assert headers["dead-letter-headers"] == "[1, 2]"
        assert "no JSON object" in headers[REASON]
