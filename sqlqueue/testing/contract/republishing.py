"""Outbox tracking, at the start of a service: what nobody has processed is sent again."""

import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.errors import DeclarationError, DecodeError, PublishError, SchemaError
from sqlqueue.relay import Tracking
from sqlqueue.testing.contract.harness import Contract, Database, created
from sqlqueue.testing.contract.tables import KeptJob
from sqlqueue.testing.contract.tracked import (
    Outbox,
    Sent,
    ShortOutbox,
    arrive,
    message,
    tracked,
)
from sqlqueue.testing.drain import drain


class RepublishContract(Contract):
    """The start of a service: what nobody has processed is sent again."""

    def test_what_is_unprocessed_is_sent_in_the_order_of_ids_with_ids_and_headers(
        self, database: Database, broker: Broker
    ) -> None:
        """SUITE 169"""
        sent, tracking = Sent(), tracked(broker)
        tracking.publisher(sent).publish(
            [message(str(number), key=f"k{number}", headers={"n": str(number)}) for number in range(250)]
        )
        before = list(sent.messages)
        sent.messages.clear()
        for number in (2, 101, 250):
            assert tracking.mark(str(number))
        assert tracking.republish() == 247
        assert sent.messages == [one for one in before if one.id not in ("2", "101", "250")]

    def test_a_consumer_that_starts_sends_them_once_it_is_open(self, broker: Broker) -> None:
        """SUITE 169"""
        sent, tracking = Sent(), tracked(broker)
        tracking.publisher(sent).publish([message()])
        created(broker, KeptJob).handler(lambda text: None)
        states: list[str] = []
        consumer = Consumer(broker, on_start=tracking.republish)
        sent.before = lambda: states.append(consumer.health().state)
        with consumer:
            assert (states, len(sent.messages)) == (["running"], 2)

    def test_a_failure_to_send_fails_the_start(self, broker: Broker) -> None:
        """SUITE 169"""
        sent, tracking = Sent(), tracked(broker)
        tracking.publisher(sent).publish([message()])
        created(broker, KeptJob).handler(lambda text: None)
        sent.fails = PublishError("away", {0: "no answer"})
        consumer = Consumer(broker, on_start=tracking.republish)
        with pytest.raises(PublishError, match="no answer"):
            consumer.start()
        assert consumer.health().state == "stopped"
        with pytest.raises(PublishError, match="no answer"):
            tracking.republish()

    @pytest.mark.parametrize("named", [True, False])
    def test_the_record_that_was_not_sent_is_named(self, broker: Broker, named: bool) -> None:
        """Its place in the page says nothing to anybody."""
        sent, tracking = Sent(), tracked(broker)
        tracking.publisher(sent).publish([message(str(number)) for number in range(150)])
        for number in range(1, 101):
            tracking.mark(number)
        sent.fails = PublishError("1 of 50 not confirmed", {33: "too large"}) if named else OSError("away")
        with pytest.raises(PublishError) as caught:
            tracking.republish()
        assert caught.value.__cause__ is sent.fails
        if named:
            assert "record '134' in table 'outbox' was not sent again: too large" in str(caught.value)
            assert "tracking.mark('134')" in str(caught.value)
        else:
            assert "record '101' and 49 more in table 'outbox' were not sent again: away" in str(caught.value)

    def test_it_may_be_limited_to_names_and_to_a_count(self, broker: Broker) -> None:
        sent, tracking = Sent(), tracked(broker, names=["mail", "bill", "log"])
        publisher = tracking.publisher(sent)
        for number in range(9):
            publisher.publish([message(str(number), ["mail", "bill", "log"][number % 3])])
        sent.messages.clear()
        assert tracking.republish(names=["mail", "log"], limit=4) == 4
        assert [one.id for one in sent.messages] == ["1", "3", "4", "6"]
        assert tracking.republish(names="bill") == 3
        assert (tracking.republish(limit=0), tracking.republish(names=[])) == (0, 0)
        with pytest.raises(DeclarationError, match="'other' is not tracked; tracked are"):
            tracking.republish(names=["other"])

    def test_records_of_names_that_are_not_tracked_any_more_stay(self, database: Database, broker: Broker) -> None:
        sent = Sent()
        tracked(broker).publisher(sent).publish([message("a"), message("b", None), message("c", "log")])
        sent.messages.clear()
        assert tracked(broker, names=["log"]).republish(sent) == 1
        assert [one.payload for one in sent.messages] == [b"c"]
        assert tracked(broker).republish(sent) == 3
        assert [one.destination for one in sent.messages[1:]] == ["mail", None, "log"]

    def test_records_that_are_written_meanwhile_are_their_publishers_to_send(self, broker: Broker) -> None:
        """Else a busy service would never have started."""
        sent, tracking = Sent(), tracked(broker)
        publisher = tracking.publisher(sent)
        publisher.publish([message(str(number)) for number in range(150)])
        other = tracking.publisher(Sent())
        sent.before = lambda: other.publish([message("late")])
        assert tracking.republish(publisher) == 150

    def test_instances_that_start_together_may_both_send_it_and_its_id_tells(self, broker: Broker) -> None:
        """SUITE 172"""
        sent, tracking, other = Sent(), tracked(broker), tracked(broker)
        tracking.publisher(sent).publish([message()])
        sent.messages.clear()
        begun: list[int] = []

        def begin_another() -> None:
            if not begun:
                begun.append(1)
                assert other.republish(sent) == 1

        sent.before = begin_another
        assert tracking.republish(sent) == 1
        queue, handled = created(broker, KeptJob), list[str]()
        queue.handler(tracking.consumer(handled.append))
        arrive(queue, *sent.messages)
        drain(broker)
        assert (len(sent.messages), handled) == (2, ["x"])

    def test_what_is_processed_is_deleted_where_no_column_keeps_it(self, database: Database, broker: Broker) -> None:
        sent, tracking = Sent(), tracked(broker, ShortOutbox)
        tracking.publisher(sent).publish([message(str(number)) for number in range(3)])
        first, second, third = (one.id for one in sent.messages)
        assert (tracking.mark(second), tracking.mark(second), tracking.seen(second)) == (True, False, False)
        sent.messages.clear()
        assert tracking.republish() == 2
        assert [one.id for one in sent.messages] == sorted([str(first), str(third)])
        assert {one.payload for one in sent.messages} == {b"0", b"2"}
        with pytest.raises(DeclarationError, match="nothing to prune"):
            tracking.prune(0)

    def test_which_publisher_must_be_clear(self, broker: Broker) -> None:
        tracking = tracked(broker)
        with pytest.raises(DeclarationError, match=r"was given 0 of them; name one"):
            tracking.republish()
        publisher = tracking.publisher(Sent())
        assert tracking.republish() == 0
        tracking.publisher(Sent())
        with pytest.raises(DeclarationError, match=r"was given 2 of them; name one"):
            tracking.republish()
        assert tracking.republish(publisher) == 0

    def test_a_table_that_is_not_as_declared_fails_the_start(self, broker: Broker) -> None:
        with pytest.raises(SchemaError, match=r"'outbox'.*no such table"):
            Tracking(broker, Outbox).republish(Sent())

    def test_a_record_that_cannot_be_read_fails_the_start(self, database: Database, broker: Broker) -> None:
        tracking = tracked(broker)
        tracking.publisher(Sent()).publish([message()])
        database.execute("UPDATE outbox SET headers = '[1]'")
        with pytest.raises(DecodeError, match=r"record '1' in table 'outbox'.*no JSON object"):
            tracking.republish()
