"""RabbitMQ, on the broker of this machine."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import urlencode

import attrs
import pika

from sqlqueue.publisher import Publisher
from sqlqueue.relay.targets.rabbitmq import sqlqueue_publisher
from tests.relay.target import Arrived, Way, unique
from tests.support.tcp_proxy import tcp_proxy

PORT = 5672


@attrs.define
class RabbitMQTarget:
    """A queue of its own on the default exchange."""

    channel: Any
    queue: str
    port: int = PORT

    @property
    def refused(self) -> str:
        return f"{self.queue}-nowhere"

    def url(self, *, port: int | None = None, login: str = "", own: bool = True, **options: object) -> str:
        query = urlencode({**({"routing_key": self.queue} if own else {}), **options})
        return f"amqp://{login or 'guest:guest'}@127.0.0.1:{port or self.port}/%2F?{query}"

    def make(self, url: str) -> Publisher:
        publisher = sqlqueue_publisher(url)
        assert publisher is not None
        return publisher

    def taken(self) -> Iterator[tuple[Any, bytes]]:
        while True:
            method, properties, payload = self.channel.basic_get(self.queue, auto_ack=True)
            if method is None:
                return
            yield properties, payload

    def way(self) -> AbstractContextManager[Way]:
        return tcp_proxy("127.0.0.1", self.port)

    def arrived(self) -> list[Arrived]:
        return [_arrived(properties, payload) for properties, payload in self.taken()]


def _arrived(properties: Any, payload: bytes) -> Arrived:
    headers = dict(properties.headers or {})
    key = headers.pop("message-key", None)
    return Arrived(payload=payload, key=key, headers=headers, id=properties.message_id)


@contextmanager
def serving() -> Iterator[RabbitMQTarget]:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", PORT))
    made = RabbitMQTarget(connection.channel(), unique())
    made.channel.queue_declare(made.queue, durable=True)
    try:
        yield made
    finally:
        made.channel.queue_delete(made.queue)
        connection.close()
