"""Another table as a relay's target: each message is a row there."""

from typing import Any
from uuid import UUID

import attrs
import pytest

from sqlqueue.broker import Broker
from sqlqueue.consumer import Consumer
from sqlqueue.errors import DeclarationError, PublishError
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay import QueuePublisher, relay
from sqlqueue.testing.contract.harness import Contract, Database, OpenBroker, created, shown
from sqlqueue.testing.contract.holding import held_by
from sqlqueue.testing.contract.line_tables import with_key_of
from sqlqueue.testing.contract.tables import FullJob, Job, KeyedJob, NamedJob, NotedOrder
from sqlqueue.testing.recorder import Recorder


def message(payload: bytes = b'"x"', **values: Any) -> OutgoingMessage:
    return OutgoingMessage(payload=payload, **values)


class QueueTargetContract(Contract):
    """What `QueuePublisher` writes."""

    def test_a_relay_fills_key_headers_and_group_and_wakes_the_consumers_there(
        self, database: Database, open_broker: OpenBroker, strategy: str
    ) -> None:
        """SUITE 121"""
        broker = open_broker()
        source = created(broker, held_by(strategy, KeyedJob))
        target = created(broker, FullJob)
        handled: list[Any] = []
        broker.queue(FullJob, group="mail").handler(lambda text, delivery: handled.append((text, delivery.key)))
        relay(source, to=QueuePublisher(target), destination="mail")
        with Consumer(broker, observers=[recorder := Recorder()]):
            recorder.wait_for("looked", where=lambda event: event.queue.startswith("full_jobs"))
            source.enqueue("one", key="jane")
            recorder.wait_for("acknowledged", where=lambda event: event.queue.startswith("full_jobs"))
        assert handled == [("one", "jane")]
        assert shown(database, target, "queue_name", "account", "headers") == [("mail", "jane", {"message-id": "1"})]

    def test_what_the_table_has_no_column_for_is_left_out(self, database: Database, broker: Broker) -> None:
        queue = created(broker, Job)
        QueuePublisher(queue).publish([message(key="k", headers={"a": "b"}, id="7")])
        assert shown(database, queue, "payload") == [('"x"',)]

    @pytest.mark.parametrize(("kind", "key"), [(int, 7), (UUID, UUID(int=7))])
    def test_a_key_is_stored_in_the_type_of_its_column(
        self, database: Database, broker: Broker, kind: type, key: Any
    ) -> None:
        queue = created(broker, with_key_of(KeyedJob, kind))
        publisher = QueuePublisher(queue)
        publisher.publish([message(key=str(key))])
        assert shown(database, queue, "account") == [(key,)]
        with pytest.raises(PublishError) as caught:
            publisher.publish([message(key="jane")])
        assert list(caught.value.unconfirmed) == [0]

    def test_a_message_that_comes_twice_is_one_row_by_its_id(self, database: Database, broker: Broker) -> None:
        queue = created(broker, NamedJob)
        publisher = QueuePublisher(queue, on_conflict="ignore")
        publisher.publish([message(id="1"), message(id="2")])
        publisher.publish([message(b'"again"', id="2"), message(id="3")])
        assert shown(database, queue, "id", "payload") == [(str(id), '"x"') for id in (1, 2, 3)]

    def test_the_header_is_that_of_the_last_hop(self, database: Database, broker: Broker) -> None:
        """Else all that were made of one event would look like it, and be skipped."""
        queue = created(broker, FullJob, group="mail")
        QueuePublisher(queue).publish([message(id=id, headers={"message-id": "1", "a": "b"}) for id in ("7", "8")])
        assert shown(database, queue, "headers") == [({"message-id": id, "a": "b"},) for id in ("7", "8")]

    def test_a_field_of_ones_own_takes_the_id(self, database: Database, broker: Broker) -> None:
        queue = created(broker, FullJob, group="mail")
        QueuePublisher(queue, id_field="error").publish([message(id="7"), message(id="8")])
        assert shown(database, queue, "error", "headers") == [("7", None), ("8", None)]

    def test_one_that_is_refused_keeps_no_other_but_those_of_its_key(self, database: Database, broker: Broker) -> None:
        queue = created(broker, attrs.evolve(with_key_of(KeyedJob, str)))
        database.execute("CREATE UNIQUE INDEX once ON keyed_jobs (payload)")
        given = [message(b"0", key="a"), message(b"0", key="b"), message(b"2", key="b"), message(b"3", key="c")]
        with pytest.raises(PublishError) as caught:
            QueuePublisher(queue).publish(given)
        assert list(caught.value.unconfirmed) == [1, 2]
        assert caught.value.unconfirmed[2] == "an earlier message of its key was not confirmed"
        assert "2 of 4 messages not enqueued" in str(caught.value)
        assert [payload for (payload,) in shown(database, queue, "payload")] == ["0", "3"]

    def test_a_destination_that_the_queue_does_not_serve_is_refused(self, database: Database, broker: Broker) -> None:
        job, mail = created(broker, Job), created(broker, FullJob, group="mail")
        for queue in (job, mail):
            with pytest.raises(PublishError, match=r"destination 'orders', which the queue .* cannot serve"):
                QueuePublisher(queue).publish([message(destination="orders")])
        QueuePublisher(mail).publish([message(destination="mail")])
        assert shown(database, mail, "queue_name") == [("mail",)]

    def test_closed_it_or_its_broker_fails_every_message_and_the_queue_stays_open(
        self, open_broker: OpenBroker
    ) -> None:
        broker = open_broker()
        queue = created(broker, Job)
        publisher = QueuePublisher(queue)
        publisher.close()
        publisher.close()
        with pytest.raises(PublishError, match="the publisher is closed"):
            publisher.publish([message()])
        queue.enqueue("open")
        broker.close()
        with pytest.raises(PublishError) as caught:
            QueuePublisher(queue).publish([message(), message()])
        assert list(caught.value.unconfirmed) == [0, 1]

    def test_where_the_database_goes_away_among_single_messages_the_rest_is_not_tried(
        self, database: Database, open_broker: OpenBroker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each would wait for it anew."""
        broker = open_broker()
        queue = created(broker, KeyedJob)
        database.execute("CREATE UNIQUE INDEX once ON keyed_jobs (payload)")
        tried: list[list[bytes]] = []
        insert = QueuePublisher._insert

        def inserting(publisher: QueuePublisher, messages: list[OutgoingMessage]) -> None:
            tried.append([one.payload for one in messages])
            if len(tried) == 3:
                broker.close()
            insert(publisher, messages)

        monkeypatch.setattr(QueuePublisher, "_insert", inserting)
        with pytest.raises(PublishError) as caught:
            QueuePublisher(queue).publish([message(each) for each in (b"0", b"0", b"2", b"3", b"4")])
        assert list(caught.value.unconfirmed) == [1, 2, 3, 4]
        assert len(tried) == 3  # all of them, the first one, and the one that found it away

    def test_a_declaration_that_cannot_work_is_refused(self, broker: Broker) -> None:
        with pytest.raises(DeclarationError, match="noted_orders: its table has no payload"):
            QueuePublisher(broker.queue(NotedOrder))
        with pytest.raises(DeclarationError, match="id_field='nowhere' is no field that an insert names"):
            QueuePublisher(broker.queue(Job), id_field="nowhere")
        with pytest.raises(DeclarationError, match="id_field='id' is no field"):
            QueuePublisher(broker.queue(Job), id_field="id")
        assert QueuePublisher(broker.queue(Job)).name.endswith(" jobs")
