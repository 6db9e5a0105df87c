"""A channel of RabbitMQ's with publisher confirms, on its own connection; what pika calls back becomes futures."""

import asyncio
from collections.abc import Callable
from typing import Any

import attrs
import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.exceptions import ChannelClosed, ConnectionClosedByClient

from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay.targets.loop import GRACE, Interrupted
from sqlqueue.relay.targets.messages import KEY
from sqlqueue.relay.targets.tally import Refused

PERSISTENT = 2

#: Why a channel is closed that is no single message's doing: its exchange is not there.
NOT_FOUND = 404


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
    """For the thread of its loop alone."""

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
            raise _again(self._lost)
        headers = {**message.headers, **({} if message.key is None else {KEY: message.key})}
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
        channel.confirm_delivery(self._confirmed, callback=lambda _: _settle(self._ready))

    def _channel_closed(self, channel: Any, error: Exception) -> None:
        """The broker closes a channel for what it does not take, such as an exchange that is not there."""
        if isinstance(error, ChannelClosed):  # else it is the connection's end, of which we hear as well
            why = f"the broker closed the channel: {error.reply_code} {error.reply_text}"
            of_one = error.reply_code != NOT_FOUND
            several = of_one and len(self._sent) > 1
            self._end(Interrupted(why) if several else Refused(why), later=Interrupted(why) if of_one else None)
            self._hang_up()

    def _returned(self, channel: Any, method: Any, properties: Any, payload: bytes) -> None:
        for sent in self._sent.values():
            message = sent.message
            found = (sent.routing_key, message.id, message.payload) == (
                method.routing_key,
                properties.message_id,
                payload,
            )
            if found and not sent.returned:
                sent.returned = True
                return

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        accepted = isinstance(method, pika.spec.Basic.Ack)
        last = method.delivery_tag
        for tag in [tag for tag in self._sent if tag <= last] if method.multiple else [last]:
            sent = self._sent.pop(tag, None)
            if sent is not None:  # else it was given up: the broker goes on confirming while the connection is closed
                _settle(sent.confirmed, self._why(sent, accepted=accepted))

    def _why(self, sent: Sent, *, accepted: bool) -> Refused | None:
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
            _settle(future, _again(self._lost or why))
        self._sent.clear()
        self._lost = self._lost or later or why
        if self._connection is None or self._connection.is_closed:
            _settle(self._closed)


async def connect(parameters: Any, exchange: str, routing_key: Callable[[OutgoingMessage], str]) -> RabbitMQSession:
    """A session that is ready to send."""
    session = RabbitMQSession(exchange, routing_key)
    await session.open(parameters)
    return session


def _settle(future: "asyncio.Future[None]", refused: Refused | None = None) -> None:
    if not future.done():  # else nobody waits for it any more
        if refused is None:
            future.set_result(None)
        else:
            future.set_exception(refused)


def _again(refused: Refused) -> Refused:
    """The same for another message: an error that is raised keeps what it was raised in."""
    return type(refused)(*refused.args)


def _trouble(what: str, error: BaseException | None) -> Refused:
    return Refused(f"{what}: {_told(error)}")


def _told(error: BaseException | None) -> str:
    """What lies under pika's wrappings."""
    inner: Any = error
    while True:
        wrapped = getattr(inner, "exceptions", None) or [getattr(inner, "exception", None), *getattr(inner, "args", ())]
        found = next((each for each in reversed(wrapped) if isinstance(each, BaseException)), None)
        if found is None:
            return str(inner) or type(inner).__name__
        inner = found
