"""RabbitMQ, by pika: `amqp://[user:password@]host[:port][/vhost][?exchange=…&routing_key=…&timeout=…]`, or `amqps://`.

On pika's connection for asyncio, on a loop's own thread: it answers heartbeats while nobody publishes, and sends many
messages before the first is confirmed. `BlockingConnection` does neither.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

import attrs
import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.exceptions import ChannelClosed, ConnectionClosedByClient

from sqlqueue.hookspecs import hookimpl
from sqlqueue.publisher import OutgoingMessage, Publisher
from sqlqueue.relay.targets.address import TIMEOUT, TLS, TLS_OPTIONS, parse, positive, shown, whole
from sqlqueue.relay.targets.loop import GRACE, Interrupted, LoopThread, publish_all
from sqlqueue.relay.targets.publishing import (
    KEY_HEADER,
    ClientHolder,
    PublishResult,
    Refused,
    check_messages,
    destination_of,
)

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

PERSISTENT = 2

#: Why a channel is closed that is no single message's doing: its exchange is not there.
NOT_FOUND = 404


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
    _thread: ClientHolder[LoopThread] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self._thread = ClientHolder(lambda: LoopThread("rabbitmq", self._connect))

    @classmethod
    def from_url(cls, url: str) -> "RabbitMQPublisher":
        """Raises `DeclarationError` for a URL that cannot be one."""
        address = parse(url)
        address.check_scheme("RabbitMQ", *SCHEMES)
        address.only("exchange", "routing_key", "max_bytes", "timeout", "heartbeat", *TLS_OPTIONS)
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
        result = PublishResult(messages)
        check_messages(result, self.max_bytes, self._check)
        publish_all(self.name, self._thread, result, self.timeout)

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

    async def _connect(self) -> "RabbitMQSession":
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
        session = RabbitMQSession(self.exchange, self._routing_key)
        await session.open(parameters)
        return session


@attrs.define(eq=False)
class Sent:
    """A message on its way: AMQP gives one back by its content alone, before it confirms it."""

    message: OutgoingMessage
    routing_key: str
    confirmed: "asyncio.Future[None]"
    returned: bool = False


class Connection(AsyncioConnection):  # type: ignore[misc]  # pika carries no types
    """One that can be given up without an answer, which pika leaves to its subclasses."""

    def abandon(self) -> None:
        if not self.is_closed:
            self._terminate_stream(ConnectionClosedByClient(0, "given up"))


@attrs.define(eq=False)
class RabbitMQSession:
    """A channel with publisher confirms, on its own connection; what pika calls back becomes futures. For the thread of
    its loop alone.
    """

    _exchange: str
    _routing_key: Callable[[OutgoingMessage], str]
    _connection: Any = attrs.field(init=False, default=None)
    _channel: Any = attrs.field(init=False, default=None)
    _ready: "asyncio.Future[None]" = attrs.field(init=False)
    _closed: "asyncio.Future[None]" = attrs.field(init=False)
    _lost: Refused | None = attrs.field(init=False, default=None)
    _tag: int = attrs.field(init=False, default=0)
    _sent: dict[int, Sent] = attrs.field(init=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._ready, self._closed = loop.create_future(), loop.create_future()

    async def open(self, parameters: Any) -> None:
        where = f"{parameters.host}:{parameters.port}"
        self._connection = Connection(
            parameters,
            on_open_callback=self._opened,
            on_open_error_callback=lambda _, error: self._end(_trouble(f"no connection to {where}", error)),
            on_close_callback=lambda _, error: self._end(_trouble(f"the connection to {where} was lost", error)),
            custom_ioloop=asyncio.get_running_loop(),
        )
        try:
            await self._ready
        except (Refused, asyncio.CancelledError):
            self._hang_up()
            raise

    @property
    def usable(self) -> bool:
        return self._lost is None

    async def send(self, message: OutgoingMessage) -> None:
        if self._lost is not None:
            raise _copy(self._lost)
        headers = {**message.headers, **({} if message.key is None else {KEY_HEADER: message.key})}
        properties = pika.BasicProperties(delivery_mode=PERSISTENT, message_id=message.id, headers=headers or None)
        sent = Sent(message, self._routing_key(message), asyncio.get_running_loop().create_future())
        self._tag += 1
        self._sent[self._tag] = sent
        self._channel.basic_publish(self._exchange, sent.routing_key, message.payload, properties, mandatory=True)
        await sent.confirmed

    async def close(self) -> None:
        self._end(Refused("the publisher was closed"))
        self._hang_up()
        await asyncio.wait({self._closed}, timeout=GRACE)
        self._connection.abandon()
        await asyncio.wait({self._closed}, timeout=GRACE)

    def _hang_up(self) -> None:
        if not (self._connection.is_closed or self._connection.is_closing):
            self._connection.close()

    # -- what pika calls back -----------------------------------------------------------------------------------

    def _opened(self, connection: Any) -> None:
        self._channel = connection.channel(on_open_callback=self._channel_opened)
        self._channel.add_on_close_callback(self._channel_closed)

    def _channel_opened(self, channel: Any) -> None:
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._confirmed, callback=lambda _: _resolve(self._ready))

    def _channel_closed(self, channel: Any, error: Exception) -> None:
        """The broker closes a channel for what it does not take, such as an exchange that is not there."""
        if isinstance(error, ChannelClosed):  # else it is the connection's end, of which we hear as well
            why = f"the broker closed the channel: {error.reply_code} {error.reply_text}"
            of_one = error.reply_code != NOT_FOUND
            several = of_one and len(self._sent) > 1
            self._end(Interrupted(why) if several else Refused(why), later=Interrupted(why) if of_one else None)
            self._hang_up()

    def _returned(self, channel: Any, method: Any, properties: Any, payload: bytes) -> None:
        given_back = (method.routing_key, properties.message_id, payload)
        for sent in self._sent.values():
            if (sent.routing_key, sent.message.id, sent.message.payload) == given_back and not sent.returned:
                sent.returned = True
                return

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        accepted = isinstance(method, pika.spec.Basic.Ack)
        last = method.delivery_tag
        for tag in [tag for tag in self._sent if tag <= last] if method.multiple else [last]:
            sent = self._sent.pop(tag, None)
            if sent is not None:  # else it was given up: the broker goes on confirming while the connection is closed
                _resolve(sent.confirmed, self._reason(sent, accepted=accepted))

    def _reason(self, sent: Sent, *, accepted: bool) -> Refused | None:
        if not accepted:
            return Refused(f"the broker refused it (nack): a queue of {sent.routing_key!r} is full, or has failed")
        if sent.returned:
            where = f"the exchange {self._exchange!r} has no queue for the routing key {sent.routing_key!r}"
            return Refused(f"{where}; declare one, and bind it")
        return None

    def _end(self, why: Refused, *, later: Refused | None = None) -> None:
        """No more can be sent, and what is on its way is lost, as far as we know. The first reason is kept. `later`:
        another one for what comes only now."""
        for future in (self._ready, *(sent.confirmed for sent in self._sent.values())):
            _resolve(future, _copy(self._lost or why))
        self._sent.clear()
        self._lost = self._lost or later or why
        if self._connection is None or self._connection.is_closed:
            _resolve(self._closed)


def _resolve(future: "asyncio.Future[None]", refused: Refused | None = None) -> None:
    if not future.done():  # else nobody waits for it any more
        if refused is None:
            future.set_result(None)
        else:
            future.set_exception(refused)


def _copy(refused: Refused) -> Refused:
    """The same for another message: an error that is raised keeps what it was raised in."""
    return type(refused)(*refused.args)


def _trouble(what: str, error: BaseException | None) -> Refused:
    """With what lies under pika's wrappings."""
    inner: Any = error
    while True:
        wrapped = getattr(inner, "exceptions", None) or [getattr(inner, "exception", None), *getattr(inner, "args", ())]
        found = next((one for one in reversed(wrapped) if isinstance(one, BaseException)), None)
        if found is None:
            return Refused(f"{what}: {str(inner) or type(inner).__name__}")
        inner = found


@hookimpl
def sqlqueue_publisher(url: str) -> Publisher | None:
    """A publisher to RabbitMQ for `amqp://` and `amqps://`."""
    return RabbitMQPublisher.from_url(url) if url.partition(":")[0] in SCHEMES else None
