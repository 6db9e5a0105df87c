"""Outbox tracking, where messages arrive: a processed one is skipped, and one that is handled is marked."""

import logging
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.delivery import Delivery
from sqlqueue.outcome import DeadLetter, Drop, Retry
from sqlqueue.queue import Queue
from sqlqueue.relay import Tracking
from sqlqueue.relay.records import Records
from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.contract.harness import Contract, Database, created, shown
from sqlqueue.testing.contract.holding import held_by
from sqlqueue.testing.contract.tables import KeptJob
from sqlqueue.testing.contract.tracked import Sent, ShortOutbox, arrive, message, processed, tracked
from sqlqueue.testing.drain import drain

AWAY, BACK = "ALTER TABLE outbox RENAME TO away", "ALTER TABLE away RENAME TO outbox"


def set_up(
    broker: Broker, strategy: str, *texts: str, clock: ManualClock | None = None, **options: Any
) -> tuple[Tracking, Queue]:
    """Tracking, and the queue to which these messages have come, published to `mail`."""
    sent, tracking = Sent(), tracked(broker, **options)
    queue = created(broker, held_by(strategy, KeptJob), clock)
    tracking.publisher(sent).publish([message(text) for text in texts])
    arrive(queue, *sent.messages)
    return tracking, queue


class TrackedHandlersContract(Contract):
    """A handler that is `tracking.consumer`'s."""

    @pytest.mark.parametrize("raised", [False, True], ids=["returned", "raised"])
    @pytest.mark.parametrize(
        ("outcome", "marked"),
        [
            (None, [1]),
            (Drop("no"), [1]),
            (Retry(), []),
            (Retry(60), []),
            (DeadLetter("no"), []),
            (ValueError("no"), []),
        ],
        ids=["ack", "drop", "retry now", "retry later", "dead letter", "failure"],
    )
    @pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
    def test_a_record_is_processed_once_its_message_is_acknowledged_or_dropped(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        outcome: Any,
        marked: list[int],
        raised: bool,
        transactional: bool,
    ) -> None:
        """SUITE 164: where what the handler wrote is undone too, which a drop is as well."""
        tracking, queue = set_up(broker, strategy, "x")
        looked: list[list[int]] = []

        @queue.handler(retry=None, max_attempts=9, transactional=transactional)
        @tracking.consumer
        def work(message: str, delivery: Delivery) -> Any:
            looked.append(processed(database))
            if len(looked) > 1 or outcome is None:
                return None
            if raised:
                raise outcome
            return outcome

        drain(broker)
        looked.append(processed(database))
        assert looked[:2] == [[], marked]

    def test_a_processed_message_is_acknowledged_without_its_handler(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        tracking, queue = set_up(broker, strategy, "a", "b", "c")
        handled: list[str] = []
        queue.handler(tracking.consumer(handled.append))
        assert tracking.mark("2")
        assert drain(broker).settled == 3
        assert (sorted(handled), processed(database)) == (["a", "c"], [1, 2, 3])
        assert None not in [done for (done,) in shown(database, queue, "done_at")]

    def test_a_processed_record_is_deleted_where_no_column_keeps_it(self, database: Database, broker: Broker) -> None:
        """SUITE 164"""
        tracking, queue = set_up(broker, "lease", "a", "b", declared=ShortOutbox)
        queue.handler(tracking.consumer(lambda text: None if text == "a" else Retry(60)))
        drain(broker)
        assert list(database.execute("SELECT payload FROM short_outbox")) == [("b",)]

    def test_a_message_without_a_record_that_can_be_found_is_handled_untracked(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """SUITE 166"""
        tracking, queue = set_up(broker, strategy, "tracked")
        handled: list[str] = []
        queue.handler(tracking.consumer(handled.append))
        ids = ["", "x", "1.0", " 1", "01", "+1", "1_0", "\u0661", "99", "-1", "9" * 19, "9" * 5000]
        for id in ids:
            queue.enqueue(f'"{id[:9]}"'.encode(), headers={"outbox-record": id})
        queue.enqueue("none")
        queue.enqueue("other", headers={"outbox": "1"})
        assert drain(broker).settled == len(handled) == len(ids) + 3
        assert processed(database) == [1]

    def test_a_message_under_another_name_is_handled_untracked(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """SUITE 166: by what is tracked, by what the handler serves, and by what the record says."""
        _, queue = set_up(broker, strategy, "x")
        handled: list[str] = []
        tracking = tracked(broker, names=["bill"])
        by_name = tracked(broker).consumer(name="bill")(handled.append)
        for handler in (tracking.consumer(handled.append), tracking.consumer(name="mail")(handled.append), by_name):
            queue._handler = None
            queue.handler(handler)
            arrive(queue, message("again", headers={"outbox-record": "1"}))
            drain(broker)
        assert (len(handled), processed(database)) == (4, [])

    def test_where_the_record_cannot_be_read_the_message_is_retried_without_its_handler(
        self,
        database: Database,
        broker: Broker,
        strategy: str,
        clock: ManualClock,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """SUITE 167: whatever the policy for failures."""
        tracking, queue = set_up(broker, strategy, "x", clock=clock)
        handled: list[str] = []
        queue.handler(retry=None)(tracking.consumer(handled.append))
        database.execute(AWAY)
        with caplog.at_level(logging.WARNING):
            drain(broker)
        assert handled == []
        assert "row 1 comes again in 1 s: its record in table 'outbox' cannot be read: " in caplog.text
        assert shown(database, queue, "attempt", "done_at", "error") == [(1, None, None)]
        database.execute(BACK)
        clock.advance(1)
        drain(broker)
        assert (handled, processed(database)) == (["x"], [1])

    def test_where_the_mark_fails_the_outcome_stands_and_the_message_is_sent_again(
        self, database: Database, broker: Broker, strategy: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """SUITE 168"""
        tracking, queue = set_up(broker, strategy, "x")
        queue.handler(tracking.consumer(lambda text: database.execute(AWAY) and None))
        with caplog.at_level(logging.WARNING):
            assert drain(broker).settled == 1
        assert [done is None for (done,) in shown(database, queue, "done_at")] == [False]
        assert "records 1 in table 'outbox' could not be marked, so their messages are sent again" in caplog.text
        database.execute(BACK)
        sent = Sent()
        assert (tracking.republish(sent), sent.messages[0].id) == (1, "1")

    def test_a_transactional_handlers_record_is_marked_in_its_transaction(
        self, database: Database, broker: Broker, strategy: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else what it wrote could be undone, and its message skipped."""
        tracking, queue = set_up(broker, strategy, "x")
        marked: list[Any] = []
        mark = Records.mark

        def looking(records: Records, connection: Any, ids: Any) -> int:
            count = mark(records, connection, ids)
            marked.append((count, processed(database), shown(database, queue, "done_at")))
            return count

        monkeypatch.setattr(Records, "mark", looking)
        queue.handler(transactional=True)(tracking.consumer(lambda text: None))
        drain(broker)
        assert (marked, processed(database)) == ([(1, [], [(None,)])], [1])
        assert [done is None for (done,) in shown(database, queue, "done_at")] == [False]

    def test_a_failure_behind_a_tracked_handler_leaves_its_record_unprocessed(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        """Such as that of a function around it: its message comes again, and is not to be skipped then."""
        tracking, queue = set_up(broker, strategy, "x")
        handled: list[str] = []
        handler = tracking.consumer(handled.append)

        @queue.handler(retry=0)
        def around(text: Any, delivery: Delivery) -> None:
            handler(text, delivery)
            if len(handled) == 1:
                raise RuntimeError("after the handler")

        drain(broker)
        assert (handled, processed(database)) == (["x", "x"], [1])

    def test_a_mark_that_fails_leaves_a_transactional_handlers_writes_as_they_are(
        self, database: Database, broker: Broker, strategy: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        """SUITE 168"""
        tracking, queue = set_up(broker, strategy, "x")
        database.execute("CREATE TABLE told (text varchar(9))")

        @queue.handler(transactional=True)
        @tracking.consumer
        def work(text: str, delivery: Delivery) -> None:
            delivery.connection.execute("INSERT INTO told VALUES ('told')")
            delivery.connection.execute(AWAY)

        with caplog.at_level(logging.WARNING):
            assert drain(broker).settled == 1
        assert "could not be marked" in caplog.text
        assert list(database.execute("SELECT text FROM told")) == [("told",)]

    def test_in_a_batch_each_message_is_skipped_or_marked_by_itself(
        self, database: Database, broker: Broker, strategy: str
    ) -> None:
        tracking, queue = set_up(broker, strategy, "a", "b", "c", "d")
        queue.enqueue("untracked")
        tracking.mark(2)
        handled: list[list[str]] = []

        @queue.handler(batch=10)
        @tracking.consumer
        def work(texts: list[str], deliveries: list[Delivery]) -> list[Any]:
            handled.append(texts)
            return [Retry(60) if text == "a" else Drop() if text == "c" else None for text in texts]

        drain(broker)
        assert sorted(text for texts in handled for text in texts) == ["a", "c", "d", "untracked"]
        assert processed(database) == [2, 3, 4]

    @pytest.mark.parametrize("answer", [[None], "ab", RuntimeError("broken")], ids=["few", "text", "raised"])
    def test_where_a_batch_fails_those_that_were_skipped_are_acknowledged(
        self, database: Database, broker: Broker, answer: Any
    ) -> None:
        tracking, queue = set_up(broker, "lease", "a", "b", "c")
        tracking.mark(2)

        @queue.handler(batch=10, retry=None)
        @tracking.consumer
        def work(texts: list[str]) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer

        drain(broker)
        assert processed(database) == [2]
        assert [error is None for (error,) in shown(database, queue, "error")] == [False, True, False]

    def test_a_transactional_handlers_record_that_cannot_be_read_leaves_its_message_to_be_retried(
        self, database: Database, broker: Broker, strategy: str, clock: ManualClock
    ) -> None:
        """SUITE 167"""
        tracking, queue = set_up(broker, strategy, "x", clock=clock)
        handled: list[str] = []
        queue.handler(transactional=True, retry=None)(tracking.consumer(handled.append))
        database.execute(AWAY)
        drain(broker)
        assert (handled, shown(database, queue, "done_at", "error")) == ([], [(None, None)])
        database.execute(BACK)
        clock.advance(1)
        drain(broker)
        assert (handled, processed(database)) == (["x"], [1])

    def test_other_consumers_ask_and_mark_by_the_messages_id(self, database: Database, broker: Broker) -> None:
        sent, tracking = Sent(), tracked(broker)
        tracking.publisher(sent).publish([message()])
        (one,) = sent.messages
        assert not tracking.seen(one.id)
        assert tracking.mark(one.id)
        assert tracking.seen(one.id)
        assert processed(database) == [1]
