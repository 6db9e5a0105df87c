"""Kafka, which is librdkafka's own cluster, in this process."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any
from urllib.parse import urlencode

import attrs
from confluent_kafka import Consumer, TopicPartition

from sqlqueue.publisher import Publisher
from sqlqueue.relay.targets.kafka import sqlqueue_publisher
from tests.relay.brokers.mock_cluster import MockCluster, mock_cluster
from tests.relay.target import LIMIT, Arrived, Way, unique


@attrs.frozen
class ClusterWay:
    """What stands for a proxy: a cluster tells where it is, and clients go there, past any proxy."""

    cluster: MockCluster
    port: int

    def cut(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.cluster.stop()
        meanwhile()
        self.cluster.start()

    def swallow(self) -> None:
        self.cluster.delay(60_000)


@attrs.define
class KafkaTarget:
    """A topic of its own."""

    cluster: MockCluster
    topic: str
    refused: str

    @property
    def port(self) -> int:
        return int(self.cluster.servers.rpartition(":")[2])

    def url(self, *, port: int | None = None, login: str = "", own: bool = True, **options: object) -> str:
        path = f"/{self.topic}" if own else ""
        return f"kafka://{login}{'@' if login else ''}127.0.0.1:{port or self.port}{path}?{urlencode(options)}"

    def make(self, url: str) -> Publisher:
        publisher = sqlqueue_publisher(url)
        assert publisher is not None
        return publisher

    def way(self) -> AbstractContextManager[Way]:
        return nullcontext(ClusterWay(self.cluster, self.port))

    def arrived(self) -> list[Arrived]:
        return [_arrived(record) for record in self.records(self.topic)]

    def records(self, topic: str) -> list[Any]:
        consumer = Consumer({"bootstrap.servers": self.cluster.servers, "group.id": unique(), "log_level": 0})
        try:
            found = consumer.list_topics(topic, LIMIT).topics[topic].partitions
            parts = [TopicPartition(topic, part, 0) for part in found]
            ends = [consumer.get_watermark_offsets(part, LIMIT) for part in parts]
            consumer.assign(parts)
            count = sum(high for _, high in ends if high > 0)
            return list(consumer.consume(count, LIMIT)) if count else []
        finally:
            consumer.close()


def _arrived(record: Any) -> Arrived:
    assert record.error() is None
    headers = {name: value.decode() for name, value in record.headers() or []}
    key = record.key()
    id_ = headers.pop("message-id", None)
    return Arrived(payload=record.value() or b"", key=None if key is None else key.decode(), headers=headers, id=id_)


def target_on(cluster: MockCluster, partitions: int = 1) -> KafkaTarget:
    made = KafkaTarget(cluster, unique(), unique("refused"))
    cluster.create_topic(made.topic, partitions)
    cluster.create_topic(made.refused, 1)
    cluster.refuse_topic(made.refused)
    return made


@contextmanager
def serving() -> Iterator[KafkaTarget]:
    """On a cluster of its own, and in several partitions."""
    with mock_cluster() as cluster:
        yield target_on(cluster, partitions=4)
