"""The publisher to Kafka, on librdkafka's own cluster."""

from collections.abc import Iterator
from typing import Any

import pytest

from sqlqueue import DeclarationError
from sqlqueue.relay.targets.kafka import KafkaPublisher, sqlqueue_publisher
from tests.relay.brokers.kafka import ClusterWay, KafkaTarget, target_on
from tests.relay.brokers.mock_cluster import MESSAGE_TOO_LARGE, OUT_OF_ORDER, MockCluster, mock_cluster
from tests.relay.target import PASSWORD, Make, message, needs, payloads, unique
from tests.relay.target_contract import Arrivals, Cuts, Outages, Refusals, check_refused, publish_again, refusal


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    needs("kafka")
    with mock_cluster() as cluster:
        yield cluster


@pytest.fixture
def target(cluster: MockCluster) -> KafkaTarget:
    return target_on(cluster)


@pytest.fixture
def cuts(target: KafkaTarget) -> Iterator[ClusterWay]:
    yield ClusterWay(target.cluster, target.port)
    target.cluster.delay(0)


class TestArrivals(Arrivals):
    def test_messages_of_a_key_have_one_partition(self, target: KafkaTarget, make: Make) -> None:
        topic = unique()
        target.cluster.create_topic(topic, 4)
        keys = [f"{number % 20}" for number in range(100)]
        make().publish([message("a", key=key, destination=topic) for key in keys])
        found = {(record.key(), record.partition()) for record in target.records(topic)}
        assert len(found) == 20
        assert len({partition for _, partition in found}) == 4


class TestRefusals(Refusals):
    def limit(self, size: int) -> dict[str, object]:
        return {"message.max.bytes": size}

    def test_what_the_broker_says_of_a_topic_is_reported(self, target: KafkaTarget, make: Make) -> None:
        said = refusal(make(), message("a", destination=target.refused)).unconfirmed[0]
        assert said.startswith("TOPIC_AUTHORIZATION_FAILED: ")

    def test_what_the_broker_says_of_a_message_is_reported(self, target: KafkaTarget, make: Make) -> None:
        publisher = make()
        publisher.publish([message("a")])
        target.cluster.refuse_requests(MESSAGE_TOO_LARGE)
        error = refusal(publisher, message("b", key="k"))
        assert "MSG_SIZE_TOO_LARGE" in error.unconfirmed[0]
        publish_again(publisher, message("c"))
        assert payloads(target.arrived()) == ["a", "c"]

    def test_after_a_fatal_error_another_producer_takes_over(self, target: KafkaTarget, make: Make) -> None:
        publisher = make()
        publisher.publish([message("a")])
        target.cluster.refuse_requests(OUT_OF_ORDER)
        assert list(refusal(publisher, message("b")).unconfirmed) == [0]
        publish_again(publisher, message("c"))
        assert payloads(target.arrived()) == ["a", "c"]

    @pytest.mark.parametrize("topic", ["a b", ".", "..", "x" * 250, "köln", "a/b"])
    def test_what_is_no_topics_name_is_reported(self, make: Make, topic: str) -> None:
        assert "is no topic's name" in refusal(make(), message("a", destination=topic)).unconfirmed[0]

    def test_a_full_producer_waits_for_room(self, target: KafkaTarget, make: Make) -> None:
        publisher = make(**{"queue.buffering.max.messages": 5})
        publisher.publish([message(f"{number}", key="k") for number in range(50)])
        assert payloads(target.arrived()) == [f"{number}" for number in range(50)]


class TestOutages(Outages):
    def module(self) -> str:
        return KafkaPublisher.__module__

    def test_a_login_is_sent_by_sasl_over_tls_unless_options_differ(self, target: KafkaTarget, make: Make) -> None:
        """The cluster here speaks neither, so that is reported, without the password."""
        error = refusal(make(login=f"shop:{PASSWORD}", timeout=1), message("a"))
        assert "ssl" in str(error).lower()
        assert PASSWORD not in f"{error} {error.unconfirmed}"

    def test_a_wrong_password_is_reported_without_it(self, target: KafkaTarget, make: Make) -> None:
        plain = {"security.protocol": "SASL_PLAINTEXT", "timeout": 1}
        error = refusal(make(login=f"shop:{PASSWORD}", **plain), message("a"))
        assert "sasl" in str(error).lower()
        assert PASSWORD not in f"{error} {error.unconfirmed}"


class TestCuts(Cuts):
    seconds = 4  # an idempotent producer asks for an id of its own first, and again only after half a second


def test_the_name_has_neither_user_nor_password() -> None:
    publisher = KafkaPublisher.from_url("kafka://shop:hush@one,two:9093/orders?ssl.key.password=hush")
    assert publisher.name == "kafka://one:9092,two:9093/orders"
    assert "hush" not in repr(publisher)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        (
            "kafka://shop:hush@host/orders?nonsense=1",
            'kafka://host:9092/orders: No such configuration property: "nonsense"',
        ),
        ("kafka://shop:hush@host/orders?linger.ms=soon", "queue.buffering.max.ms"),
        ("kafka://shop:hush@host/orders?acks=1", "the option 'acks' is the publisher's own; leave it out"),
        ("kafka://shop:hush@host/orders?delivery.report.only.error=true", "the option 'delivery.report.only.error' is"),
        ("kafka://shop:hush@host/orders?logger=x", "the option 'logger' is the publisher's own; leave it out"),
        ("kafka://shop:hush@host/orders?transactional.id=x", "the option 'transactional.id' is the publisher's own"),
        ("kafka://shop:hush@host/orders?stats_cb=hush", "an option of another kind than text: expected stats_cb"),
        ("kafka://shop:hush@host/orders?default.topic.config=x", "an option of another kind than text: 'str' object"),
        ("kafka://shop:hush@host/orders?timeout=never", "has timeout='never', which is no number"),
    ],
)
def test_a_url_that_cannot_be_one_is_refused_without_its_password(url: str, said: str) -> None:
    check_refused(sqlqueue_publisher, url, said)


def test_another_url_is_left_to_others() -> None:
    assert sqlqueue_publisher("redis://host/0") is None
    with pytest.raises(DeclarationError):
        KafkaPublisher.from_url("redis://host/0")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"linger.ms": 5}, "KafkaPublisher(options=…): 'linger.ms' is of type int; give text"),
        ({"ssl.key.password": b"hush"}, "KafkaPublisher(options=…): 'ssl.key.password' is of type bytes; give text"),
        ({5: "hush"}, "KafkaPublisher(options=…): an option's name is 5; give text"),
        ("hush", "KafkaPublisher(options=…): of type str; give a mapping of text by text"),
    ],
)
def test_options_by_hand_are_text_by_text(options: Any, said: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        KafkaPublisher(options=options)
    assert str(caught.value) == said
