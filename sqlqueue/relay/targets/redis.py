"""Redis Streams, by redis-py: `redis://[user:password@]host[:port][/db][?stream=…&maxlen=…&timeout=…]`, or `rediss://`."""

import json
from collections.abc import Sequence
from time import monotonic
from typing import Any

import attrs
from redis.exceptions import ConnectionError, RedisError, TimeoutError

from sqlqueue.errors import DeclarationError
from sqlqueue.hookspecs import hookimpl
from sqlqueue.publisher import OutgoingMessage, Publisher
from sqlqueue.relay.targets.address import TIMEOUT, parse, shown
from sqlqueue.relay.targets.checks import positive, whole
from sqlqueue.relay.targets.holding import Holding
from sqlqueue.relay.targets.messages import check_all, destination_of
from sqlqueue.relay.targets.redis_client import Client, client
from sqlqueue.relay.targets.tally import Refused, Tally
from sqlqueue.relay.targets.tls import OPTIONS, TLS

PORT = 6379

#: Bytes of a value that a server takes unless it is told otherwise (`proto-max-bulk-len`).
MAX_BYTES = 512 * 2**20

SCHEMES = ("redis", "rediss")

#: What ends a publish: the next stream would wait for the same.
AWAY = (ConnectionError, TimeoutError, OSError, Refused)

#: What redis-py puts before the server's words, with the start of the command's values.
PREFACE = " of pipeline caused error: "


@attrs.define(eq=False, kw_only=True)
class RedisPublisher:
    """Adds each message to a stream as one entry with the fields `payload`, and where the message has them `key`, `id`
    and `headers` (a JSON object).

    `stream`: for messages without a destination. `maxlen`: entries at which a stream is trimmed, nearly (`MAXLEN ~`);
    None never trims. `max_bytes` of a payload. `timeout`: seconds that a publish may take. `tls`: None speaks in the
    clear. `username` and `password`: of Redis' ACL; a password alone is `requirepass`.
    """

    host: str = "localhost"
    port: int = attrs.field(default=PORT, validator=whole(1))
    db: int = attrs.field(default=0, validator=whole(0))
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    tls: TLS | None = None
    stream: str | None = None
    maxlen: int | None = attrs.field(default=None, validator=attrs.validators.optional(whole(1)))
    max_bytes: int = attrs.field(default=MAX_BYTES, validator=whole(1))
    timeout: float = attrs.field(default=TIMEOUT, validator=positive)
    _client: Holding[Client] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._client = Holding(self._open)

    @classmethod
    def from_url(cls, url: str) -> "RedisPublisher":
        """Raises `DeclarationError` for a URL that cannot be one."""
        address = parse(url)
        if address.scheme not in SCHEMES:
            raise DeclarationError(f"the URL {address} is not one of Redis: it begins with redis:// or rediss://")
        address.only("stream", "maxlen", "max_bytes", "timeout", *OPTIONS)
        host, port = address.one_host()
        if address.path and not address.path.isdecimal():
            raise DeclarationError(f"the URL {address} names the database {address.path!r}, which is no number")
        return cls(
            host=host,
            port=port or PORT,
            db=int(address.path or 0),
            username=address.username,
            password=address.password,
            tls=address.tls("rediss"),
            stream=address.options.get("stream"),
            maxlen=address.whole("maxlen", 0) if "maxlen" in address.options else None,
            max_bytes=address.whole("max_bytes", MAX_BYTES),
            timeout=address.timeout(),
        )

    @property
    def name(self) -> str:
        where = shown("rediss" if self.tls else "redis", ((self.host, self.port),))
        return f"{where}/{self.db}" + (f"?stream={self.stream}" if self.stream else "")

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """One transaction (MULTI … EXEC) for each stream of the messages, which is one round trip.

        In it the messages of a stream are added all or none, so no message can overtake one of its key; a stream
        that refuses them refuses none of another's. Redis confirms a message when the transaction has run. A
        connection that is lost, or silent until the end of the time, ends it: what is left is not sent.
        """
        tally, until = Tally(messages), monotonic() + self.timeout
        check_all(tally, self.max_bytes, self._stream)
        ended = None
        for stream, places in self._by_stream(tally).items():
            still_open = set(tally.open_places())
            ended = self._add(tally, stream, [place for place in places if place in still_open], until)
            if ended is not None:
                break
        tally.close(self.name, f"it was not sent: {ended}")

    def close(self) -> None:
        self._client.close()

    def _by_stream(self, tally: Tally) -> dict[str, list[int]]:
        streams: dict[str, list[int]] = {}
        for place in tally.open_places():
            streams.setdefault(self._stream(tally.messages[place]), []).append(place)
        return streams

    def _stream(self, message: OutgoingMessage) -> str:
        return destination_of(message, self.stream, "stream")

    def _add(self, tally: Tally, stream: str, places: Sequence[int], until: float) -> str | None:
        """Add a stream's messages; why nothing more may be sent to any other, where that is so."""
        if not places:
            return None
        if monotonic() >= until:
            return f"the {self.timeout:g} s of the publish were over"
        ended = None
        try:
            replies = self._run(stream, [tally.messages[place] for place in places], until)
        except (RedisError, OSError, Refused) as error:
            replies = [error] * len(places)
            if isinstance(error, AWAY):
                ended = self._why(stream, error)
        for place, reply in zip(places, replies, strict=True):
            if isinstance(reply, Exception):
                tally.refuse(place, self._why(stream, reply))
            else:
                tally.confirm(place)
        return ended

    def _run(self, stream: str, messages: Sequence[OutgoingMessage], until: float) -> list[Any]:
        def add_all(pipeline: Any) -> None:
            for message in messages:
                pipeline.xadd(stream, _fields(message), maxlen=self.maxlen, approximate=True)

        return self._client.get().run(add_all, until)

    def _open(self) -> Client:
        return client(
            self.tls, host=self.host, port=self.port, db=self.db, username=self.username, password=self.password
        )

    def _why(self, stream: str, error: Exception) -> str:
        if isinstance(error, Refused):
            return str(error)
        text = str(error).rpartition(PREFACE)[2]
        if self.password:
            text = text.replace(self.password, "***")
        return f"stream {stream!r}: {type(error).__name__}: {text}"


def _fields(message: OutgoingMessage) -> dict[Any, Any]:
    fields: dict[Any, Any] = {"payload": message.payload}
    if message.key is not None:
        fields["key"] = message.key
    if message.id is not None:
        fields["id"] = message.id
    if message.headers:
        fields["headers"] = json.dumps(dict(message.headers), ensure_ascii=False)
    return fields


@hookimpl
def sqlqueue_publisher(url: str) -> Publisher | None:
    """A publisher to Redis Streams for `redis://` and `rediss://`."""
    return RedisPublisher.from_url(url) if url.partition(":")[0] in SCHEMES else None
