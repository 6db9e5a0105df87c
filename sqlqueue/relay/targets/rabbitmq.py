"""RabbitMQ, by pika: `amqp://[user:password@]host[:port][/vhost][?exchange=…&routing_key=…&timeout=…]`, or `amqps://`.

On pika's connection for asyncio, on a loop's own thread: it answers heartbeats while nobody publishes, and sends many
messages before the first is confirmed. `BlockingConnection` does neither.
"""

from collections.abc import Sequence
from urllib.parse import quote

import attrs
import pika

from sqlqueue.errors import DeclarationError
from sqlqueue.hookspecs import hookimpl
from sqlqueue.publisher import OutgoingMessage, Publisher
from sqlqueue.relay.targets.address import TIMEOUT, parse, shown
from sqlqueue.relay.targets.checks import positive, whole
from sqlqueue.relay.targets.holding import Holding
from sqlqueue.relay.targets.loop import LoopThread, publish_all
from sqlqueue.relay.targets.messages import check_all, destination_of
from sqlqueue.relay.targets.rabbitmq_session import RabbitMQSession, connect
from sqlqueue.relay.targets.tally import Refused, Tally
from sqlqueue.relay.targets.tls import OPTIONS, TLS

PORT, TLS_PORT = 5672, 5671

#: Bytes of a message that RabbitMQ 4 takes unless it is told otherwise (`max_message_size`); 3 takes more.
MAX_BYTES = 16 * 2**20

#: Bytes that AMQP has room for in a short text.
SHORT = 255

#: Bytes of headers: they go into one frame, of 128 KiB where nobody set another size.
MAX_HEADER_BYTES = 100_000

#: Headers in which the broker looks for further routing keys, as lists; text there has it close the channel.
ITS_HEADERS = ("CC", "BCC")

SCHEMES = ("amqp", "amqps")


@attrs.define(eq=False, kw_only=True)
class RabbitMQPublisher:
    """Publishes to an exchange, persistently and mandatory; a message's destination is its routing key.

    `exchange`: "" is the default one, where a routing key is a queue's name. `routing_key`: for messages without a
    destination. `max_bytes` of a payload. `timeout`: seconds that a publish may take. `heartbeat`: seconds, whole,
    after which a silent peer counts as lost. `tls`: None speaks in the clear.
    """

    host: str = "localhost"
    port: int = attrs.field(default=PORT, validator=whole(1))
    vhost: str = "/"
    username: str = "guest"
    password: str = attrs.field(default="guest", repr=False)
    tls: TLS | None = None
    exchange: str = ""
    routing_key: str | None = None
    max_bytes: int = attrs.field(default=MAX_BYTES, validator=whole(1))
    timeout: float = attrs.field(default=TIMEOUT, validator=positive)
    heartbeat: int = attrs.field(default=20, validator=whole(1))
    _thread: Holding[LoopThread] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._thread = Holding(lambda: LoopThread("rabbitmq", self._connect))

    @classmethod
    def from_url(cls, url: str) -> "RabbitMQPublisher":
        """Raises `DeclarationError` for a URL that cannot be one."""
        address = parse(url)
        if address.scheme not in SCHEMES:
            raise DeclarationError(f"the URL {address} is not one of RabbitMQ: it begins with amqp:// or amqps://")
        address.only("exchange", "routing_key", "max_bytes", "timeout", "heartbeat", *OPTIONS)
        host, port = address.one_host()
        tls = address.tls("amqps")
        return cls(
            host=host,
            port=port or (TLS_PORT if tls else PORT),
            vhost=address.path or "/",
            username=address.username or "guest",
            password=address.password or "guest",
            tls=tls,
            exchange=address.options.get("exchange", ""),
            routing_key=address.options.get("routing_key"),
            max_bytes=address.whole("max_bytes", MAX_BYTES),
            timeout=address.timeout(),
            heartbeat=address.whole("heartbeat", 20),
        )

    @property
    def name(self) -> str:
        where = shown("amqps" if self.tls else "amqp", ((self.host, self.port),))
        given = (("exchange", self.exchange), ("routing_key", self.routing_key))
        query = "&".join(f"{name}={value}" for name, value in given if value)
        return f"{where}/{quote(self.vhost, safe='')}" + (f"?{query}" if query else "")

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """Many messages at once, and one after the other where they have the same key.

        RabbitMQ confirms a message when every queue that takes it has it, on disk where it is durable. Where it closes
        the channel for one of them, the others are sent again, one at a time.
        """
        tally = Tally(messages)
        check_all(tally, self.max_bytes, self._check)
        publish_all(self.name, self._thread, tally, self.timeout)

    def close(self) -> None:
        self._thread.close()

    def _routing_key(self, message: OutgoingMessage) -> str:
        if self.exchange:  # there are exchanges that do not look at it
            return message.destination or self.routing_key or ""
        return destination_of(message, self.routing_key, "routing_key")

    def _check(self, message: OutgoingMessage) -> None:
        short = {"routing key": self._routing_key(message), "id": message.id or ""}
        for what, text in (*short.items(), *(("name of a header", name) for name in message.headers)):
            if len(text.encode()) > SHORT:
                raise Refused(f"the {what} is longer than the {SHORT} bytes that AMQP has room for; shorten it")
        for name in message.headers:
            if name in ITS_HEADERS:
                raise Refused(
                    f"the header {name!r} is one of RabbitMQ's own, for further routing keys, and would close the "
                    "channel; give it another name"
                )
        given = (*message.headers.items(), ("", message.key or ""))
        if sum(len(text.encode()) for header in given for text in header) > MAX_HEADER_BYTES:
            raise Refused(f"its headers and key are longer than {MAX_HEADER_BYTES} bytes; move them to the payload")

    async def _connect(self) -> RabbitMQSession:
        parameters = pika.ConnectionParameters(
            host=self.host,
            port=self.port,
            virtual_host=self.vhost,
            credentials=pika.PlainCredentials(self.username, self.password),
            ssl_options=pika.SSLOptions(self.tls.context(), self.host) if self.tls else None,
            heartbeat=self.heartbeat,
            connection_attempts=1,
            socket_timeout=self.timeout,
            stack_timeout=self.timeout,
            blocked_connection_timeout=self.timeout,
            client_properties={"connection_name": "sqlqueue"},
        )
        return await connect(parameters, self.exchange, self._routing_key)


@hookimpl
def sqlqueue_publisher(url: str) -> Publisher | None:
    """A publisher to RabbitMQ for `amqp://` and `amqps://`."""
    return RabbitMQPublisher.from_url(url) if url.partition(":")[0] in SCHEMES else None
