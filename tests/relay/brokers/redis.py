"""Redis, on the server of this machine."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from urllib.parse import urlencode

import attrs
import redis

from sqlqueue.publisher import Publisher
from sqlqueue.relay.targets.redis import sqlqueue_publisher
from tests.relay.target import Arrived, Way, unique
from tests.support.tcp_proxy import tcp_proxy

PORT = 6379


@attrs.define
class RedisTarget:
    """A stream of its own, and a key beside it that is no stream."""

    client: "redis.Redis"
    stream: str
    port: int = PORT

    @property
    def refused(self) -> str:
        return f"{self.stream}-text"

    def url(self, *, port: int | None = None, login: str = "", own: bool = True, **options: object) -> str:
        query = urlencode({**({"stream": self.stream} if own else {}), **options})
        return f"redis://{login}{'@' if login else ''}127.0.0.1:{port or self.port}/0?{query}"

    def make(self, url: str) -> Publisher:
        publisher = sqlqueue_publisher(url)
        assert publisher is not None
        return publisher

    def way(self) -> AbstractContextManager[Way]:
        return tcp_proxy("127.0.0.1", self.port)

    def arrived(self) -> list[Arrived]:
        entries: Any = self.client.xrange(self.stream)
        return [
            Arrived(
                payload=fields[b"payload"],
                key=fields[b"key"].decode() if b"key" in fields else None,
                headers=json.loads(fields.get(b"headers", b"{}")),
                id=fields[b"id"].decode() if b"id" in fields else None,
            )
            for _, fields in entries
        ]


@contextmanager
def serving() -> Iterator[RedisTarget]:
    with redis.Redis("127.0.0.1", PORT) as client:
        made = RedisTarget(client, unique())
        client.set(made.refused, "no stream")
        try:
            yield made
        finally:
            client.delete(made.stream, made.refused)
