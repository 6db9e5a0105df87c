"""A client of NATS with JetStream: it reconnects by itself within a second, and is replaced where it could not."""

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import attrs
from nats.aio.client import Client
from nats.errors import Error
from nats.js.api import PubAck
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError

from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay.targets.messages import ID, KEY
from sqlqueue.relay.targets.nats_ids import InDoubt, stream_id
from sqlqueue.relay.targets.tally import Refused

logger = logging.getLogger("sqlqueue.relay")

#: The header by which a stream knows a message again.
STREAM_ID = "Nats-Msg-Id"

#: How the client tries to connect, and again where it lost its server: times beside the first two, and seconds between.
RETRIES, WAIT = 2, 0.25

#: Seconds between two questions whether the server is there; a second one without an answer, and it counts as lost.
PING_EVERY, PINGS = 10, 2

#: Seconds that the client waits for a confirmation: a publish has a limit of its own.
FOREVER = 86_400.0

#: Bytes that a message's headers take beside their names and values: the line before them, and the end of each.
HEADERS, HEADER = len("NATS/1.0\r\n\r\n"), len(": \r\n")


class TLSClient(Client):
    """Says who it is over TLS alone: nats-py itself tells its password to a server that does not ask for TLS."""

    def _connect_command(self) -> bytes:
        if not self._server_info.get("tls_required"):
            raise Error("the server does not offer TLS, so nothing was sent to it")
        return super()._connect_command()


@attrs.define(eq=False)
class NATSSession:
    """For the thread of its loop alone. `secure`: only over TLS."""

    _where: str
    _subject: Callable[[OutgoingMessage], str]
    _in_doubt: InDoubt
    _secure: bool = attrs.field(kw_only=True)
    client: Client = attrs.field(init=False)
    _stream: JetStreamContext = attrs.field(init=False)
    _waiting: "set[asyncio.Future[PubAck]]" = attrs.field(init=False, factory=set)
    _given_up: "set[asyncio.Future[PubAck]]" = attrs.field(init=False, factory=set)
    _error: Exception | None = attrs.field(init=False, default=None)
    _untrusted: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)

    def __attrs_post_init__(self) -> None:
        self.client = TLSClient() if self._secure else Client()
        self._stream = self.client.jetstream()

    @property
    def usable(self) -> bool:
        return not self.client.is_closed

    async def connect(self, servers: list[str], settings: dict[str, Any]) -> None:
        """Raises what the client does; where it trusts no certificate it waits for ever by itself (nats-py 2.16)."""
        connecting = asyncio.ensure_future(self.client.connect(servers, **settings))
        untrusted = asyncio.ensure_future(self._untrusted.wait())
        try:
            await asyncio.wait({connecting, untrusted}, return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done() and self._error is not None:
                raise self._error
            await connecting
        finally:
            for each in (connecting, untrusted):
                each.cancel()
            await asyncio.gather(connecting, untrusted, return_exceptions=True)

    async def send(self, message: OutgoingMessage) -> None:
        subject = self._subject(message)
        own = {KEY: message.key, ID: message.id, STREAM_ID: stream_id(message, subject)}
        headers = {**message.headers, **{name: value for name, value in own.items() if value is not None}}
        self._check_size(message, headers)
        with self._in_doubt.sending(own[STREAM_ID]) as may_be_there:
            acknowledgement = await self._published(subject, message.payload, headers)
        if acknowledgement.duplicate and not may_be_there:
            logger.warning(
                "%s: message %s on subject %r was confirmed and not stored, for the stream has one of that id, key, "
                "headers and payload, which was confirmed before: it was published twice, or another table has such a "
                "row; give rows of several tables on one subject a header that tells them apart",
                self._where,
                message.id,
                subject,
            )

    async def _published(self, subject: str, payload: bytes, headers: dict[str, str]) -> PubAck:
        try:
            return await self._confirmed(self._stream.publish(subject, payload, FOREVER, headers=headers or None))
        except NoStreamResponseError:
            raise Refused(f"no stream covers the subject {subject!r}, or JetStream is off; create one") from None
        except APIError as error:
            raise Refused(f"the stream refused it: {error.description} (error {error.err_code})") from None
        except Error as error:
            raise Refused(f"{type(error).__name__}: {error}") from None

    async def _confirmed(self, published: Coroutine[Any, Any, PubAck]) -> PubAck:
        # `publish_async` would spare the task, but a refusal by the stream never reaches its future (nats-py 2.16).
        waiting = asyncio.ensure_future(published)
        self._waiting.add(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting not in self._given_up:
                raise
            raise Refused(f"the connection to {self._where} was lost before it was confirmed") from None
        finally:
            self._waiting.discard(waiting)
            self._given_up.discard(waiting)

    def _check_size(self, message: OutgoingMessage, headers: dict[str, str]) -> None:
        """A server cuts the connection for a message that is too long; the client looks at the payload alone."""
        size = sum(HEADER + len(name.encode()) + len(value.encode()) for name, value in headers.items())
        size += len(message.payload) + (HEADERS if headers else 0)
        if size > self.client.max_payload:
            raise Refused(
                f"it has {size} bytes, headers included, more than the server's max_payload={self.client.max_payload}; "
                "send less, or raise that"
            )

    async def close(self) -> None:
        await self.client.close()

    # -- what the client calls back -----------------------------------------------------------------------------

    async def lost(self) -> None:
        """What is on its way gets no answer any more: that would come on the connection that was lost."""
        self._given_up |= self._waiting
        for waiting in self._waiting:
            waiting.cancel()

    async def failed(self, error: Exception) -> None:
        if self._error is None or isinstance(self._error, OSError):  # a refusal says more than the cut after it
            self._error = error
        if isinstance(error, ssl.SSLError):
            self._untrusted.set()

    def why_not(self, error: Exception) -> str:
        """Why there is no connection: what the client told of on its way says more than its own error."""
        trouble = self._error or error
        return f"no connection to {self._where}: {type(trouble).__name__}: {trouble}"


async def connect(
    session: NATSSession,
    *,
    servers: list[str],
    user: str | None,
    password: str | None,
    token: str | None,
    tls: ssl.SSLContext | None,
) -> None:
    """Connect the session's client to one of the servers. Raises `Refused`."""
    settings: Any = {  # its types ask for whole seconds, its code does not
        "name": "sqlqueue",
        "user": user,
        "password": password,
        "token": token,
        "tls": tls,
        "error_cb": session.failed,
        "disconnected_cb": session.lost,
        "reconnect_time_wait": WAIT,
        "max_reconnect_attempts": RETRIES,
        "ping_interval": PING_EVERY,
        "max_outstanding_pings": PINGS,
    }
    try:
        await session.connect(servers, settings)
    except (Error, OSError, asyncio.TimeoutError) as error:
        await _give_up(session.client)
        raise Refused(session.why_not(error)) from None
    except asyncio.CancelledError:
        await _give_up(session.client)
        raise


async def _give_up(client: Client) -> None:
    try:
        await client.close()
    except AttributeError:
        pass  # before 2.15 it looks for a connection that there never was
