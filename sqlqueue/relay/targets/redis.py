"""Redis Streams, by redis-py: `redis://[user:password@]host[:port][/db][?stream=…&maxlen=…&timeout=…]`, or `rediss://`."""

import json
import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

import attrs
import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.exceptions import ConnectionError, RedisError, TimeoutError
from redis.retry import Retry

from sqlqueue.errors import DeclarationError
from sqlqueue.hookspecs import hookimpl
from sqlqueue.publisher import OutgoingMessage, Publisher
from sqlqueue.relay.targets.address import TIMEOUT, TLS, TLS_OPTIONS, parse, positive, shown, whole
from sqlqueue.relay.targets.publishing import ClientHolder, PublishResult, Refused, check_messages, destination_of

PORT = 6379

#: Bytes of a value that a server takes unless it is told otherwise (`proto-max-bulk-len`).
MAX_BYTES = 512 * 2**20

SCHEMES = ("redis", "rediss")

#: What ends a publish: the next stream would wait for the same.
UNREACHABLE = (ConnectionError, TimeoutError, OSError, Refused)

#: What redis-py puts before the server's words, with the start of the command's values.
PREFACE = " of pipeline caused error: "

#: Seconds of the shortest wait; 0 would be one that never waits.
SHORTEST = 0.001


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
    _client: "ClientHolder[Client]" = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._client = ClientHolder(self._open)

    @classmethod
    def from_url(cls, url: str) -> "RedisPublisher":
        """Raises `DeclarationError` for a URL that cannot be one."""
        address = parse(url)
        address.check_scheme("Redis", *SCHEMES)
        address.only("stream", "maxlen", "max_bytes", "timeout", *TLS_OPTIONS)
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
        result, until = PublishResult(messages), monotonic() + self.timeout
        check_messages(result, self.max_bytes, self._stream)
        streams: dict[str, list[int]] = {}
        for index in result.open_indexes():
            streams.setdefault(self._stream(messages[index]), []).append(index)
        end: str | None = None
        for stream, indexes in streams.items():
            still_open = [index for index in indexes if result.is_open(index)]
            if still_open:
                end = self._add(result, stream, still_open, until)
            if end is not None:
                break
        result.raise_unconfirmed(self.name, f"it was not sent: {end}")

    def close(self) -> None:
        self._client.close()

    def _stream(self, message: OutgoingMessage) -> str:
        return destination_of(message, self.stream, "stream")

    def _add(self, result: PublishResult, stream: str, indexes: Sequence[int], until: float) -> str | None:
        """Add a stream's messages; why nothing more may be sent to any other, where that is so."""
        if monotonic() >= until:
            return f"the {self.timeout:g} s of the publish were over"

        def add_all(pipeline: Any) -> None:
            for index in indexes:
                pipeline.xadd(stream, _fields(result.messages[index]), maxlen=self.maxlen, approximate=True)

        end: str | None = None
        try:
            replies = self._client.get().run(add_all, until)
        except (RedisError, OSError, Refused) as error:
            replies = [error] * len(indexes)
            if isinstance(error, UNREACHABLE):
                end = self._reason(stream, error)
        for index, reply in zip(indexes, replies, strict=True):
            if isinstance(reply, Exception):
                result.refuse(index, self._reason(stream, reply))
            else:
                result.confirm(index)
        return end

    def _open(self) -> "Client":
        return make_client(
            self.tls, host=self.host, port=self.port, db=self.db, username=self.username, password=self.password
        )

    def _reason(self, stream: str, error: Exception) -> str:
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


# -- redis-py's client, whose waits end at one moment; its own settings limit each of them by itself -------------


class Deadline(threading.local):
    """When the thread's waits end, by the monotonic clock."""

    until: float = 0.0


_deadline = Deadline()


def _remaining() -> float:
    return max(SHORTEST, _deadline.until - monotonic())


class Bounded:
    """A connection that waits no longer than its thread may."""

    def connect(self, *args: Any, **settings: Any) -> None:
        for wait in ("socket_connect_timeout", "socket_timeout"):
            setattr(self, wait, _remaining())
        super().connect(*args, **settings)  # type: ignore[misc]  # it is a Connection

    def send_packed_command(self, *args: Any, **settings: Any) -> None:
        self._wait_no_longer()
        super().send_packed_command(*args, **settings)  # type: ignore[misc]

    def read_response(self, *args: Any, **settings: Any) -> Any:
        self._wait_no_longer()
        return super().read_response(*args, **settings)  # type: ignore[misc]

    def _wait_no_longer(self) -> None:
        sock = getattr(self, "_sock", None)
        if sock is not None:
            sock.settimeout(_remaining())


class Plain(Bounded, Connection): ...


class Encrypted(Bounded, SSLConnection): ...


@attrs.define(eq=False)
class Client:
    """A connection for each thread that is at work. It cannot close one under a thread, so one at work when this is
    closed is closed when it is back, which is in its time."""

    _redis: "redis.Redis"
    _closed: bool = attrs.field(init=False, default=False)

    def run(self, fill: Callable[[Any], None], until: float) -> list[Any]:
        """The replies to what `fill` puts into a transaction. Raises redis-py's `TimeoutError` at `until`."""
        _deadline.until = until
        try:
            with self._redis.pipeline(transaction=True) as pipeline:
                fill(pipeline)
                return pipeline.execute(raise_on_error=False)
        finally:
            if self._closed:
                self._hang_up()

    def close(self) -> None:
        self._closed = True
        self._hang_up()

    def _hang_up(self) -> None:
        self._redis.connection_pool.disconnect(inuse_connections=False)


def make_client(tls: TLS | None, **settings: Any) -> Client:
    """A client that connects at its first use. `settings`: redis-py's."""
    once = Retry(NoBackoff(), 0)  # a second try by itself might add all of them again
    made = redis.Redis(retry=once, **_secured(tls), **settings)
    made.connection_pool.connection_class = Plain if tls is None else Encrypted
    return Client(made)


def _secured(tls: TLS | None) -> dict[str, Any]:
    if tls is None:
        return {}
    return {
        "ssl": True,
        "ssl_ca_certs": tls.cafile,  # it trusts the system's as well
        "ssl_certfile": tls.certfile,
        "ssl_keyfile": tls.keyfile,
        "ssl_cert_reqs": "required",
        "ssl_check_hostname": True,  # not its default before redis-py 6
    }


@hookimpl
def sqlqueue_publisher(url: str) -> Publisher | None:
    """A publisher to Redis Streams for `redis://` and `rediss://`."""
    return RedisPublisher.from_url(url) if url.partition(":")[0] in SCHEMES else None
