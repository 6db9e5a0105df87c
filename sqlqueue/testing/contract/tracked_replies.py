"""Outbox tracking, where a tracked handler replies: its record is processed once its reply is confirmed."""

from collections.abc import Sequence
from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.delivery import Delivery
from sqlqueue.outcome import Drop
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay import MemoryPublisher, relay
from sqlqueue.relay.records import Records
from sqlqueue.testing.contract.harness import Contract, Database, created, shown
from sqlqueue.testing.contract.tables import KeptJob
from sqlqueue.testing.contract.tracked import arrive, message, processed
from sqlqueue.testing.contract.tracked_handlers import set_up
from sqlqueue.testing.drain import drain


class Looking(MemoryPublisher):
    """Keeps which records are processed when it is to publish."""

    def __init__(self, database: Database) -> None:
        super().__init__("looking")
        self._database = database
        self.looked: list[list[int]] = []

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        self.looked.append(processed(self._database))
        super().publish(messages)


class TrackedRepliesContract(Contract):
    """A handler that is `tracking.consumer`'s, and whose queue says `reply_to`."""

    @pytest.fixture
    def bus(self, database: Database) -> Looking:
        return Looking(database)

    @pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactional"])
    def test_a_reply_that_was_not_confirmed_is_made_again(
        self, database: Database, broker: Broker, strategy: str, bus: Looking, transactional: bool
    ) -> None:
        """Its record stays unprocessed until then, so that nothing is skipped, by a process that died either."""
        tracking, queue = set_up(broker, strategy, "x")
        handled: list[str] = []

        @queue.handler(reply_to=bus, retry=0, transactional=transactional)
        @tracking.consumer
        def work(text: str) -> Any:
            handled.append(text)
            return {"answer": text}

        bus.fail(OSError("away"))
        drain(broker)
        assert (handled, bus.looked, processed(database)) == (["x", "x"], [[], []], [1])
        assert [one.payload for one in bus.messages] == [b'{"answer":"x"}']

    def test_the_record_is_marked_before_its_row_is_settled(
        self, database: Database, broker: Broker, strategy: str, bus: Looking, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else a process that died between the two would leave a record that is sent again for nothing."""
        tracking, queue = set_up(broker, strategy, "x")
        rows: list[Any] = []
        mark = Records.mark

        def looking(records: Records, connection: Any, ids: Any) -> int:
            rows.append((len(bus.messages), shown(database, queue, "done_at")))
            return mark(records, connection, ids)

        monkeypatch.setattr(Records, "mark", looking)
        queue.handler(reply_to=bus)(tracking.consumer(lambda text: text))
        drain(broker)
        assert rows == [(1, [(None,)])]

    def test_in_a_batch_a_record_is_processed_where_its_own_reply_was_confirmed(
        self, database: Database, broker: Broker, strategy: str, bus: Looking
    ) -> None:
        tracking, queue = set_up(broker, strategy, "a", "b", "c", "d", "e")
        tracking.mark(5)

        @queue.handler(batch=10, reply_to=bus, retry=60)
        @tracking.consumer
        def work(texts: list[str]) -> list[Any]:
            return [None if text == "c" else Drop() if text == "d" else text for text in texts]

        bus.refuse(lambda message: message.payload == b'"b"')
        drain(broker)
        assert (processed(database), [one.payload for one in bus.messages]) == ([1, 3, 4, 5], [b'"a"'])
        assert [done is None for (done,) in shown(database, queue, "done_at")] == [False, True, False, False, False]

    def test_where_all_replies_of_a_batch_fail_no_record_of_theirs_is_processed(
        self, database: Database, broker: Broker, strategy: str, bus: Looking
    ) -> None:
        tracking, queue = set_up(broker, strategy, "a", "b")
        queue.handler(batch=10, reply_to=bus, retry=60)(tracking.consumer(lambda texts: texts))
        bus.fail(OSError("away"), times=2)
        drain(broker)
        assert (processed(database), bus.messages) == ([], [])

    @pytest.mark.parametrize("header", ["outbox-record", "shop-record"])
    @pytest.mark.parametrize("copied", [False, True], ids=["inherited", "copied"])
    def test_a_reply_names_no_record_of_what_it_answers_to(
        self, broker: Broker, bus: Looking, header: str, copied: bool
    ) -> None:
        """Its consumer would take it for a message that it has seen."""
        tracking, queue = set_up(broker, "lease", "x", header=header)
        read: list[str] = []

        @queue.handler(reply_to=bus)
        @tracking.consumer
        def work(text: str, delivery: Delivery) -> Any:
            read.append(delivery.headers[header])
            return [b"1", OutgoingMessage(payload=b"2", headers={**delivery.headers, "n": "2"}) if copied else b"2"]

        drain(broker)
        assert read == ["1"]
        assert [dict(one.headers) for one in bus.messages] == [{}, {"n": "2"} if copied else {}]

    def test_nor_do_replies_of_a_handler_that_is_not_tracked(self, broker: Broker) -> None:
        """The first of them would have the others skipped."""
        queue, bus = created(broker, KeptJob), MemoryPublisher("bus")
        queue.handler(reply_to=bus)(lambda text: [b"1", b"2"])
        arrive(queue, message(headers={"outbox-record": "1", "trace": "b7"}))
        drain(broker)
        assert [dict(one.headers) for one in bus.messages] == [{"trace": "b7"}] * 2

    @pytest.mark.parametrize("batch", [None, 10], ids=["singly", "batches"])
    def test_a_relay_hands_the_record_on_with_its_message(
        self, broker: Broker, bus: Looking, batch: int | None
    ) -> None:
        """It is the same message, which its consumer has yet to process."""
        _, queue = set_up(broker, "lease", "x")
        relay(queue, to=bus, batch=batch)
        drain(broker)
        assert [one.headers for one in bus.messages] == [{"outbox-record": "1"}]
