"""NATS JetStream, by nats-py: `nats://[user:password@]host[:port][,host[:port]…][/subject][?timeout=…]`, or `tls://`.

A user without a password is a token."""

import asyncio
import json
import logging
import re
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

import attrs
from nats.aio.client import Client
from nats.errors import Error
from nats.js.api import PubAck
from nats.js.client import JetStreamContext
from nats.js.errors import APIError, NoStreamResponseError

from sqlqueue.errors import DeclarationError
from sqlqueue.hookspecs import hookimpl
from sqlqueue.publisher import OutgoingMessage, Publisher
from sqlqueue.relay.targets.address import TIMEOUT, TLS, TLS_OPTIONS, parse, positive, shown
from sqlqueue.relay.targets.loop import LoopThread, publish_all
from sqlqueue.relay.targets.publishing import (
    ID_HEADER,
    KEY_HEADER,
    ClientHolder,
    PublishResult,
    Refused,
    check_messages,
    destination_of,
)

logger = logging.getLogger("sqlqueue.relay")

PORT = 4222

SCHEMES = ("nats", "tls")

#: Bytes of a subject: a server takes 4 KiB for the whole line that begins a message.
MAX_SUBJECT_BYTES = 3_500

#: Tokens with dots between; white space would break the protocol's line, and wildcards are for those who subscribe.
SUBJECT = re.compile(r"(?!.*(?:^|\.)[*>](?:\.|$))[^\s.]+(?:\.[^\s.]+)*")

HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

#: The header by which a stream recognizes a message.
STREAM_ID = "Nats-Msg-Id"

#: How the client connects, and reconnects where it lost its server: times beside the first two, and seconds between.
RETRIES, WAIT = 2, 0.25

#: Seconds between two questions whether the server is there; a second one without an answer, and it counts as lost.
PING_EVERY, PINGS = 10, 2

#: Seconds that the client waits for a confirmation: a publish has a limit of its own.
FOREVER = 86_400.0

#: Bytes that a message's headers take beside their names and values: the line before them, and the end of each.
HEADERS_BYTES, HEADER_BYTES = len("NATS/1.0\r\n\r\n"), len(": \r\n")

#: Messages in doubt that a publisher remembers.
MOST_IN_DOUBT = 10_000


def stream_id(message: OutgoingMessage, subject: str) -> str | None:
    """The message's id with a digest of all that it says and where; None for one without an id.

    Ids count rows: of another table too, and a stream knows but one kind of id for all its subjects. By the id alone it
    would drop that table's event and confirm it.
    """
    if message.id is None:
        return None
    about = json.dumps([subject, message.key, sorted(message.headers.items())])
    return f"{message.id}-{blake2b(about.encode() + b'/' + message.payload, digest_size=16).hexdigest()}"


@attrs.define
class InDoubt:
    """The ids of messages that were sent and not confirmed: sent once more, such a one may be stored already."""

    _ids: dict[str | None, None] = attrs.field(factory=dict)

    @contextmanager
    def sending(self, id: str | None) -> Iterator[bool]:
        """Around a send, which raises unless it is confirmed; whether the message may be stored already."""
        try:
            yield id in self._ids
        except BaseException:  # a cancellation too
            self._ids[id] = None
            while len(self._ids) > MOST_IN_DOUBT:
                del self._ids[next(iter(self._ids))]
            raise
        self._ids.pop(id, None)


@attrs.define(eq=False, kw_only=True)
class NATSPublisher:
    """Publishes to JetStream; a message's destination is its subject, which a stream has to cover.

    `servers`: hosts and ports of one cluster. `subject`: for messages without a destination. `timeout`: seconds that a
    publish may take. `token`: instead of `username` and `password`. `tls`: tells nothing to a server that does not
    offer it; None leaves it to the server, and trusts the certificates that the system trusts.
    """

    servers: tuple[tuple[str, int], ...] = (("localhost", PORT),)
    username: str | None = None
    password: str | None = attrs.field(default=None, repr=False)
    token: str | None = attrs.field(default=None, repr=False)
    tls: TLS | None = None
    subject: str | None = None
    timeout: float = attrs.field(default=TIMEOUT, validator=positive)
    _in_doubt: InDoubt = attrs.field(init=False, factory=InDoubt, repr=False)
    _thread: ClientHolder[LoopThread] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not self.servers:
            raise DeclarationError("NATSPublisher(servers=()): give at least one host and port")
        self._thread = ClientHolder(lambda: LoopThread("nats", self._connect))

    @classmethod
    def from_url(cls, url: str) -> "NATSPublisher":
        """Raises `DeclarationError` for a URL that cannot be one."""
        address = parse(url)
        address.check_scheme("NATS", *SCHEMES)
        address.only("timeout", *TLS_OPTIONS)
        alone = address.password is None
        return cls(
            servers=tuple((host, port or PORT) for host, port in address.hosts),
            username=None if alone else address.username,
            password=address.password,
            token=address.username if alone else None,
            tls=address.tls("tls"),
            subject=address.path or None,
            timeout=address.timeout(),
        )

    @property
    def name(self) -> str:
        return self.shown(*self.servers) + (f"/{self.subject}" if self.subject else "")

    def shown(self, *servers: tuple[str, int]) -> str:
        return shown("nats" if self.tls is None else "tls", servers)

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """Many messages at once, and one after the other where they have the same key.

        The server confirms a message when its stream has stored it, or has it already: the same one under the same id
        that came within the stream's `duplicate_window` is not stored again.
        """
        result = PublishResult(messages)
        check_messages(result, None, self._check)
        publish_all(self.name, self._thread, result, self.timeout)

    def close(self) -> None:
        self._thread.close()

    def subject_of(self, message: OutgoingMessage) -> str:
        return destination_of(message, self.subject, "subject")

    def _check(self, message: OutgoingMessage) -> None:
        subject = self.subject_of(message)
        if not SUBJECT.fullmatch(subject) or len(subject.encode()) > MAX_SUBJECT_BYTES:
            raise Refused(
                f"{subject[:100]!r} is no subject to publish to: give tokens with a dot between, without white "
                f"space or wildcards, of {MAX_SUBJECT_BYTES} bytes at most"
            )
        for name in message.headers:
            if not HEADER_NAME.fullmatch(name):
                raise Refused(f"the header name {name!r} is none for NATS: use letters, digits and dashes")
        for what, value in (("key", message.key), ("id", message.id), *message.headers.items()):
            if value is not None and (value != value.strip() or "\n" in value or "\r" in value):
                raise Refused(
                    f"{what!r} has a line break, or white space at its ends, which a header of NATS cannot carry; "
                    "encode it, or move it to the payload"
                )

    async def _connect(self) -> "NATSSession":
        session = NATSSession(self, self._in_doubt)
        await session.connect()
        return session


class TLSClient(Client):
    """Says who it is over TLS alone: nats-py itself tells its password to a server that does not ask for TLS."""

    def _connect_command(self) -> bytes:
        if not self._server_info.get("tls_required"):
            raise Error("the server does not offer TLS, so nothing was sent to it")
        return super()._connect_command()


@attrs.define(eq=False)
class NATSSession:
    """A client with JetStream: it reconnects by itself within a second, and is replaced where it could not. For the
    thread of its loop alone.
    """

    _publisher: NATSPublisher
    _in_doubt: InDoubt
    client: Client = attrs.field(init=False)
    _stream: JetStreamContext = attrs.field(init=False)
    _waiting: "set[asyncio.Future[PubAck]]" = attrs.field(init=False, factory=set)
    _given_up: "set[asyncio.Future[PubAck]]" = attrs.field(init=False, factory=set)
    _error: Exception | None = attrs.field(init=False, default=None)
    _untrusted: asyncio.Event = attrs.field(init=False, factory=asyncio.Event)

    def __attrs_post_init__(self) -> None:
        self.client = Client() if self._publisher.tls is None else TLSClient()
        self._stream = self.client.jetstream()

    @property
    def usable(self) -> bool:
        return not self.client.is_closed

    async def connect(self) -> None:
        """Connect the client to one of the servers. Raises `Refused`."""
        try:
            await self._connected()
        except (Error, OSError, asyncio.TimeoutError) as error:
            await self._give_up()
            trouble = self._error or error  # what the client reported on its way says more than its own error
            raise Refused(f"no connection to {self._where}: {type(trouble).__name__}: {trouble}") from None
        except asyncio.CancelledError:
            await self._give_up()
            raise

    async def _connected(self) -> None:
        """Raises what the client does; where it trusts no certificate it waits for ever by itself (nats-py 2.16)."""
        publisher = self._publisher
        settings: Any = {  # its types ask for whole seconds, its code does not
            "name": "sqlqueue",
            "user": publisher.username,
            "password": publisher.password,
            "token": publisher.token,
            "tls": None if publisher.tls is None else publisher.tls.context(),
            "error_cb": self._failed,
            "disconnected_cb": self._disconnected,
            "reconnect_time_wait": WAIT,
            "max_reconnect_attempts": RETRIES,
            "ping_interval": PING_EVERY,
            "max_outstanding_pings": PINGS,
        }
        servers = [publisher.shown(server) for server in publisher.servers]
        connecting = asyncio.ensure_future(self.client.connect(servers, **settings))
        untrusted = asyncio.ensure_future(self._untrusted.wait())
        try:
            await asyncio.wait({connecting, untrusted}, return_when=asyncio.FIRST_COMPLETED)
            if not connecting.done() and self._error is not None:
                raise self._error
            await connecting
        finally:
            for task in (connecting, untrusted):
                task.cancel()
            await asyncio.gather(connecting, untrusted, return_exceptions=True)

    async def _give_up(self) -> None:
        try:
            await self.client.close()
        except AttributeError:
            pass  # before 2.15 it looks for a connection that there never was

    @property
    def _where(self) -> str:
        return self._publisher.shown(*self._publisher.servers)

    async def send(self, message: OutgoingMessage) -> None:
        subject = self._publisher.subject_of(message)
        own = {KEY_HEADER: message.key, ID_HEADER: message.id, STREAM_ID: stream_id(message, subject)}
        headers = {**message.headers, **{name: value for name, value in own.items() if value is not None}}
        self._check_size(message, headers)
        with self._in_doubt.sending(own[STREAM_ID]) as may_be_stored:
            acknowledgement = await self._published(subject, message.payload, headers)
        if acknowledgement.duplicate and not may_be_stored:
            logger.warning(
                "%s: message %s on subject %r was confirmed and not stored, for the stream has one of that id, key, "
                "headers and payload, which was confirmed before: it was published twice, or another table has such a "
                "row; give rows of several tables on one subject a header that tells them apart",
                self._where,
                message.id,
                subject,
            )

    async def _published(self, subject: str, payload: bytes, headers: dict[str, str]) -> PubAck:
        # `publish_async` would spare the task, but a refusal by the stream never reaches its future (nats-py 2.16).
        publishing = self._stream.publish(subject, payload, FOREVER, headers=headers or None)
        waiting = asyncio.ensure_future(publishing)
        self._waiting.add(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting not in self._given_up:
                raise
            raise Refused(f"the connection to {self._where} was lost before it was confirmed") from None
        except NoStreamResponseError:
            raise Refused(f"no stream covers the subject {subject!r}, or JetStream is off; create one") from None
        except APIError as error:
            raise Refused(f"the stream refused it: {error.description} (error {error.err_code})") from None
        except Error as error:
            raise Refused(f"{type(error).__name__}: {error}") from None
        finally:
            self._waiting.discard(waiting)
            self._given_up.discard(waiting)

    def _check_size(self, message: OutgoingMessage, headers: dict[str, str]) -> None:
        """A server cuts the connection for a message that is too long; the client looks at the payload alone."""
        size = sum(HEADER_BYTES + len(name.encode()) + len(value.encode()) for name, value in headers.items())
        size += len(message.payload) + (HEADERS_BYTES if headers else 0)
        if size > self.client.max_payload:
            raise Refused(
                f"it has {size} bytes, headers included, more than the server's max_payload={self.client.max_payload}; "
                "send less, or raise that"
            )

    async def close(self) -> None:
        await self.client.close()

    # -- what the client calls back -----------------------------------------------------------------------------

    async def _disconnected(self) -> None:
        """What is on its way is never confirmed: that would come on the connection that was lost."""
        self._given_up |= self._waiting
        for waiting in self._waiting:
            waiting.cancel()

    async def _failed(self, error: Exception) -> None:
        if self._error is None or isinstance(self._error, OSError):  # a refusal says more than the cut after it
            self._error = error
        if isinstance(error, ssl.SSLError):
            self._untrusted.set()


@hookimpl
def sqlqueue_publisher(url: str) -> Publisher | None:
    """A publisher to NATS JetStream for `nats://` and `tls://`."""
    return NATSPublisher.from_url(url) if url.partition(":")[0] in SCHEMES else None
