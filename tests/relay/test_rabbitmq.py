"""The publisher to RabbitMQ, on the broker of this machine."""

import asyncio
import gc
import warnings
from collections.abc import Iterator
from typing import Any

import attrs
import pika
import pytest

from sqlqueue import DeclarationError
from sqlqueue.relay.targets import rabbitmq
from sqlqueue.relay.targets.rabbitmq import RabbitMQPublisher, RabbitMQSession, sqlqueue_publisher
from tests.relay.brokers.rabbitmq import RabbitMQTarget, serving
from tests.relay.target import PASSWORD, Arrived, Make, at_once, message, needs, payloads, unique
from tests.relay.target_contract import Arrivals, Cuts, Outages, Refusals, check_refused, publish_again, refusal
from tests.support.tcp_proxy import TCPProxy


@pytest.fixture
def target() -> Iterator[RabbitMQTarget]:
    needs("rabbitmq")
    with serving() as made:
        yield made


class TestArrivals(Arrivals):
    def test_messages_are_persistent(self, target: RabbitMQTarget, make: Make) -> None:
        make().publish([message("a")])
        assert [properties.delivery_mode for properties, _ in target.taken()] == [2]

    def test_an_exchange_hands_on_by_the_routing_key(self, target: RabbitMQTarget, make: Make) -> None:
        exchange = unique()
        target.channel.exchange_declare(exchange, "topic")
        target.channel.queue_bind(target.queue, exchange, "orders.*")
        publisher = make(own=False, exchange=exchange, routing_key="orders.new")
        error = refusal(publisher, message("a"), message("b", destination="orders.paid"), message("c", destination="x"))
        target.channel.exchange_delete(exchange)
        assert error.unconfirmed == {
            2: f"the exchange {exchange!r} has no queue for the routing key 'x'; declare one, and bind it"
        }
        assert sorted(payloads(target.arrived())) == ["a", "b"]

    def test_a_fanout_exchange_needs_no_routing_key(self, target: RabbitMQTarget, make: Make) -> None:
        exchange = unique()
        target.channel.exchange_declare(exchange, "fanout")
        target.channel.queue_bind(target.queue, exchange)
        make(own=False, exchange=exchange).publish([message("a")])
        target.channel.exchange_delete(exchange)
        assert payloads(target.arrived()) == ["a"]


class TestRefusals(Refusals):
    def test_a_wrong_password_is_reported_without_it(self, make: Make) -> None:
        error = refusal(make(login=f"nobody:{PASSWORD}"), message("a"))
        assert "ACCESS_REFUSED" in str(error)
        assert PASSWORD not in f"{error} {error.unconfirmed}"

    def test_equal_messages_of_which_one_has_no_way_are_distinguished(self, target: RabbitMQTarget, make: Make) -> None:
        batch = [message("a", destination=place) for place in (target.refused, target.queue) * 3]
        assert sorted(refusal(make(), *batch).unconfirmed) == [0, 2, 4]

    def test_a_full_queue_refuses(self, target: RabbitMQTarget, make: Make) -> None:
        full = unique()
        target.channel.queue_declare(full, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        publisher = make()
        publisher.publish([message("a", destination=full)])
        error = refusal(publisher, message("b", destination=full, key="k"), message("c", key="k"), message("d"))
        target.channel.queue_delete(full)
        assert sorted(error.unconfirmed) == [0, 1]
        assert "nack" in error.unconfirmed[0]
        assert payloads(target.arrived()) == ["d"]

    def test_an_exchange_that_is_not_there_is_reported_and_may_come(self, target: RabbitMQTarget, make: Make) -> None:
        exchange = unique()
        publisher = make(exchange=exchange)
        assert f"no exchange '{exchange}'" in str(refusal(publisher, message("a")))
        target.channel.exchange_declare(exchange, "fanout")
        target.channel.queue_bind(target.queue, exchange)
        publisher.publish([message("b")])
        target.channel.exchange_delete(exchange)
        assert payloads(target.arrived()) == ["b"]

    def test_larger_than_the_broker_takes_is_reported_in_its_words(self, target: RabbitMQTarget, make: Make) -> None:
        publisher = make(max_bytes=2**30)
        large = b"x" * (128 * 2**20 + 1)
        error = refusal(publisher, attrs.evolve(message(""), payload=large))
        assert "message size" in str(error)
        publish_again(publisher, message("a"))
        assert payloads(target.arrived()) == ["a"]

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({"destination": "k" * 256}, "the routing key is longer than the 255 bytes"),
            ({"id": "ü" * 128}, "the id is longer than the 255 bytes"),
            ({"headers": {"n" * 256: ""}}, "the name of a header is longer than the 255 bytes"),
            ({"headers": {"n": "x" * 100_000}}, "its headers and key are longer than 100000 bytes"),
            ({"key": "x" * 100_001}, "its headers and key are longer than 100000 bytes"),
        ],
    )
    def test_what_amqp_has_no_room_for_is_reported(self, make: Make, settings: dict[str, Any], said: str) -> None:
        assert said in refusal(make(), message("a", **settings)).unconfirmed[0]

    def test_what_amqp_has_just_room_for_arrives(self, target: RabbitMQTarget, make: Make) -> None:
        headers = {"n" * 255: "x" * 99_000}
        make().publish([message("a", id="i" * 255, headers=headers)])
        assert target.arrived() == [Arrived(payload=b"a", id="i" * 255, headers=headers)]


class TestClosedChannels:
    """RabbitMQ answers some messages by closing the channel, and with it all that are on their way there. Such is one
    with a header `CC` of text, which the publisher refuses itself unless a test stops it."""

    @pytest.mark.parametrize("name", ["CC", "BCC"])
    def test_a_header_that_the_broker_takes_for_its_own_is_reported(
        self, target: RabbitMQTarget, make: Make, name: str
    ) -> None:
        error = refusal(make(), message("a"), message("b", headers={name: "boss@example"}), message("c"))
        assert error.unconfirmed == {
            1: f"the header {name!r} is one of RabbitMQ's own, for further routing keys, and would close the channel; "
            "give it another name"
        }
        assert sorted(payloads(target.arrived())) == ["a", "c"]

    @pytest.fixture
    def unchecked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(rabbitmq, "ITS_HEADERS", ())

    @pytest.mark.usefixtures("unchecked")
    def test_only_the_one_that_closed_it_is_refused_and_those_of_its_key_behind_it(
        self, target: RabbitMQTarget, make: Make
    ) -> None:
        batch = [message(f"{number}", key=f"{number % 5}") for number in range(20)]
        batch[6] = message("bad", key="1", headers={"CC": "boss@example"})
        error = refusal(make(), *batch)
        assert sorted(error.unconfirmed) == [6, 11, 16]
        assert "the broker closed the channel: 406 PRECONDITION_FAILED" in error.unconfirmed[6]
        assert error.unconfirmed[11] == "an earlier message of its key was not confirmed"
        arrived = payloads(target.arrived())
        for key in range(5):
            mine = list(dict.fromkeys(each for each in arrived if int(each) % 5 == key))
            assert mine == [f"{number}" for number in range(key, 5 if key == 1 else 20, 5)]

    @pytest.mark.usefixtures("unchecked")
    def test_those_of_other_threads_are_confirmed(self, target: RabbitMQTarget, make: Make) -> None:
        publisher = make()
        publisher.publish([message("first")])

        def run(thread: int) -> None:
            for number in range(10):
                bad = thread == 0 and number == 5
                one = message(f"{thread}-{number}", headers={"CC": "boss@example"} if bad else {})
                if bad:
                    refusal(publisher, one)
                else:
                    publisher.publish([one])

        at_once(4, run)
        expected = {f"{thread}-{number}" for thread in range(4) for number in range(10)} - {"0-5"}
        assert set(payloads(target.arrived())) == {"first", *expected}

    @pytest.mark.usefixtures("unchecked")
    def test_many_of_that_kind_end_it_and_the_rest_waits_for_another_publish(
        self, target: RabbitMQTarget, make: Make, cuts: TCPProxy
    ) -> None:
        """Each costs a connection."""
        batch = [message(f"{number}", headers={"CC": "boss@example"}) for number in range(30)]
        error = refusal(make(port=cuts.port), *batch, message("good"))
        assert sorted(error.unconfirmed) == list(range(31))
        assert cuts.accepted <= 12

    def test_where_the_exchange_is_not_there_each_is_refused_at_once(
        self, target: RabbitMQTarget, make: Make, cuts: TCPProxy
    ) -> None:
        error = refusal(make(port=cuts.port, exchange=unique()), *(message(f"{number}") for number in range(30)))
        assert len(error.unconfirmed) == 30
        assert all("no exchange" in why for why in error.unconfirmed.values())
        assert cuts.accepted == 1

    def test_a_confirmation_that_comes_after_the_end_is_nobodys(self) -> None:
        """Such as while it is closed under a publish."""

        async def confirmed() -> None:
            session = RabbitMQSession("", lambda message: "")
            for multiple in (False, True):
                session._confirmed(pika.frame.Method(1, pika.spec.Basic.Ack(delivery_tag=1, multiple=multiple)))

        asyncio.run(confirmed())


class TestOutages(Outages):
    def module(self) -> str:
        return RabbitMQPublisher.__module__


class TestCuts(Cuts):
    def test_an_idle_publisher_outlives_its_heartbeat(self, target: RabbitMQTarget, make: Make) -> None:
        """The broker cuts a connection that is silent for two heartbeats."""
        publisher = make(heartbeat=1)
        publisher.publish([message("a")])
        target.channel.connection.process_data_events(time_limit=3)  # meanwhile
        publisher.publish([message("b")])
        assert payloads(target.arrived()) == ["a", "b"]

    def test_a_peer_that_fell_silent_is_lost_after_the_heartbeat(
        self, target: RabbitMQTarget, make: Make, cuts: TCPProxy
    ) -> None:
        publisher = make(port=cuts.port, heartbeat=1)
        publisher.publish([message("a")])
        cuts.swallow()
        error = refusal(publisher, message("b"))
        assert "was lost" in str(error)
        cuts.forward()
        publisher.publish([message("c")])
        assert payloads(target.arrived()) == ["a", "c"]

    def test_closing_leaves_no_socket_where_nobody_answers_the_goodbye(self, make: Make, cuts: TCPProxy) -> None:
        publisher = make(port=cuts.port)
        publisher.publish([message("a")])
        cuts.swallow()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", ResourceWarning)
            publisher.close()
            gc.collect()
        assert [str(each.message) for each in said] == []


def test_the_name_has_neither_user_nor_password() -> None:
    publisher = RabbitMQPublisher.from_url("amqps://shop:hush@mq.example/sales%2Feu?exchange=events&routing_key=new")
    assert publisher.name == "amqps://mq.example:5671/sales%2Feu?exchange=events&routing_key=new"
    assert "hush" not in repr(publisher)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "amqp://:hush@host/?queue=orders",
            "has the option 'queue'; there are: cafile, certfile, exchange, heartbeat,",
        ),
        ("amqp://:hush@host/?heartbeat=0", "RabbitMQPublisher(heartbeat=0): give a whole number from 1"),
        ("amqp://:hush@a,b/", "names 2 hosts; this publisher takes one"),
    ],
)
def test_a_url_that_cannot_be_one_is_refused_without_its_password(url: str, said: str) -> None:
    check_refused(sqlqueue_publisher, url, said)


def test_another_url_is_left_to_others() -> None:
    assert sqlqueue_publisher("redis://host/0") is None
    with pytest.raises(DeclarationError):
        RabbitMQPublisher.from_url("redis://host/0")
