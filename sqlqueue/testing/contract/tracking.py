"""Outbox tracking: what is published is recorded first, and is sent again until somebody has processed it."""

from typing import Any

import pytest

from sqlqueue.broker import Broker
from sqlqueue.errors import PublishError
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.testing.contract.harness import Contract, Database, created
from sqlqueue.testing.contract.tables import KeptJob
from sqlqueue.testing.contract.tracked import (
    Sent,
    ShortOutbox,
    message,
    recorded,
    tracked,
)
from sqlqueue.testing.drain import drain


class TrackingContract(Contract):
    """Publishing: the record, and then the message with its id."""

    def test_a_record_is_committed_before_the_message_is_sent_with_its_id(
        self, database: Database, broker: Broker
    ) -> None:
        """SUITE 162"""
        sent, queue = Sent(), created(broker, KeptJob)
        publisher = tracked(broker).publisher(sent)
        seen: list[Any] = []
        sent.before = lambda: seen.extend(recorded(database))

        @queue.handler
        def answer(text: str) -> None:
            publisher.publish([message(text, key="A", headers={"trace": "b7"})])

        queue.enqueue("hello")
        drain(broker)
        assert seen == [(1, "mail", "A")]
        assert sent.messages == [
            OutgoingMessage(
                payload=b"hello",
                destination="mail",
                key="A",
                headers={"trace": "b7", "outbox-record": "1"},
                id="1",
            )
        ]

    def test_a_reply_is_recorded_before_it_is_sent_and_its_row_settles_behind_that(
        self, database: Database, broker: Broker
    ) -> None:
        """SUITE 162"""
        sent, queue = Sent(), created(broker, KeptJob)
        seen: list[Any] = []
        sent.before = lambda: seen.extend([recorded(database), database.execute("SELECT done_at FROM kept_jobs")])

        @queue.handler(reply_to=tracked(broker).publisher(sent))
        def answer(text: str) -> OutgoingMessage:
            return message(text, key="A")

        queue.enqueue("hello")
        drain(broker)
        assert seen == [[(1, "mail", "A")], [(None,)]]
        assert [(one.payload, one.id) for one in sent.messages] == [(b"hello", "1")]
        assert database.execute("SELECT done_at FROM kept_jobs") != [(None,)]

    def test_outside_of_any_handler_it_is_the_same(self, database: Database, broker: Broker) -> None:
        """SUITE 171: in a request, for one."""
        sent = Sent()
        tracked(broker).publisher(sent).publish([message("a"), message("b", "bill")])
        assert [(one.id, one.headers) for one in sent.messages] == [
            ("1", {"outbox-record": "1"}),
            ("2", {"outbox-record": "2"}),
        ]
        assert recorded(database) == [(1, "mail", None), (2, "bill", None)]

    def test_messages_to_other_names_are_sent_as_they_are_in_their_places(
        self, database: Database, broker: Broker
    ) -> None:
        """SUITE 163"""
        sent = Sent()
        publisher = tracked(broker, names=["mail"]).publisher(sent)
        others = [message("a", "log", id="7"), message("c", None, headers={"trace": "b7"})]
        publisher.publish([others[0], message("b"), others[1]])
        assert [sent.messages[0], sent.messages[2]] == others
        assert sent.messages[1].id == "1"
        assert recorded(database) == [(1, "mail", None)]

    def test_a_message_that_is_not_tracked_names_no_record(self, broker: Broker) -> None:
        """SUITE 163: that of what it answers to is not its own."""
        sent = Sent()
        publisher = tracked(broker, names=["mail"]).publisher(sent)
        publisher.publish([message("a", "log", headers={"trace": "b7", "outbox-record": "9"})])
        assert sent.messages == [message("a", "log", headers={"trace": "b7"})]

    def test_where_a_record_cannot_be_written_nothing_is_sent(self, database: Database, broker: Broker) -> None:
        """SUITE 163: nor recorded."""
        sent = Sent()
        publisher = tracked(broker).publisher(sent)
        database.execute("CREATE UNIQUE INDEX one_a_name ON outbox (name)")
        with pytest.raises(PublishError, match=r"nothing was sent.*table 'outbox'") as caught:
            publisher.publish([message("a", "log"), message("b"), message("c")])
        assert caught.value.__cause__ is not None
        assert caught.value.unconfirmed == dict.fromkeys(range(3), "not recorded")
        del caught  # it refers to the driver's cursor, and this frame to it
        assert (sent.messages, recorded(database)) == ([], [])

    def test_what_the_table_has_no_place_for_is_refused(self, database: Database, broker: Broker) -> None:
        """It would be missing when the message is sent again."""
        sent = Sent()
        publisher = tracked(broker, ShortOutbox).publisher(sent)
        for wrong, why in (
            (message(headers={"trace": "b7"}), "column.headers"),
            (message(key="A"), "column.partition_key"),
            (message(name=None), "names no destination"),
            (OutgoingMessage(payload=b"\xff", destination="mail"), "bytes"),
        ):
            with pytest.raises(PublishError, match=why):
                publisher.publish([message(), wrong])
        assert (sent.messages, list(database.execute("SELECT id FROM short_outbox"))) == ([], [])

    def test_what_was_recorded_and_not_confirmed_is_kept(self, database: Database, broker: Broker) -> None:
        sent = Sent()
        tracking = tracked(broker)
        sent.fails = PublishError("away", {1: "no answer"})
        with pytest.raises(PublishError) as caught:
            tracking.publisher(sent).publish([message("a"), message("b")])
        assert caught.value is sent.fails
        sent.fails = None
        assert tracking.republish() == 2
        assert [one.payload for one in sent.messages] == [b"a", b"b"]

    def test_the_record_of_an_answer_is_its_own(self, broker: Broker) -> None:
        """Whatever headers the handler hands on."""
        sent = Sent()
        tracking = tracked(broker)
        publisher = tracking.publisher(sent)
        publisher.publish([message("question")])
        publisher.publish([message("answer", headers=sent.messages[0].headers)])
        tracking.republish()
        assert [one.headers["outbox-record"] for one in sent.messages] == ["1", "2", "1", "2"]

    def test_the_header_is_as_one_likes(self, broker: Broker) -> None:
        sent = Sent()
        tracked(broker, header="shop-record").publisher(sent).publish([message()])
        assert sent.messages[0].headers == {"shop-record": "1"}

    def test_it_is_named_and_closed_as_what_it_sends_by(self, broker: Broker) -> None:
        sent = Sent()
        publisher = tracked(broker).publisher(sent)
        publisher.close()
        assert (publisher.name, sent.closed) == (sent.name, True)
