"""NATS JetStream, by nats-py: `nats://[user:password@]host[:port][,host[:port]…][/subject][?timeout=…]`, or `tls://`.

A user without a password is a token."""

import re
from collections.abc import Sequence

import attrs

from sqlqueue.errors import DeclarationError
from sqlqueue.hookspecs import hookimpl
from sqlqueue.publisher import OutgoingMessage, Publisher
from sqlqueue.relay.targets.address import TIMEOUT, parse, shown
from sqlqueue.relay.targets.checks import positive
from sqlqueue.relay.targets.holding import Holding
from sqlqueue.relay.targets.loop import LoopThread, publish_all
from sqlqueue.relay.targets.messages import check_all, destination_of
from sqlqueue.relay.targets.nats_ids import InDoubt
from sqlqueue.relay.targets.nats_session import NATSSession, connect
from sqlqueue.relay.targets.tally import Refused, Tally
from sqlqueue.relay.targets.tls import OPTIONS, TLS

PORT = 4222

SCHEMES = ("nats", "tls")

#: Bytes of a subject: a server takes 4 KiB for the whole line that begins a message.
MAX_SUBJECT_BYTES = 3_500

#: Tokens with dots between; white space would break the protocol's line, and wildcards are for those who subscribe.
SUBJECT = re.compile(r"(?!.*(?:^|\.)[*>](?:\.|$))[^\s.]+(?:\.[^\s.]+)*")

HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


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
    _thread: Holding[LoopThread] = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not self.servers:
            raise DeclarationError("NATSPublisher(servers=()): give at least one host and port")
        self._thread = Holding(lambda: LoopThread("nats", self._connect))

    @classmethod
    def from_url(cls, url: str) -> "NATSPublisher":
        """Raises `DeclarationError` for a URL that cannot be one."""
        address = parse(url)
        if address.scheme not in SCHEMES:
            raise DeclarationError(f"the URL {address} is not one of NATS: it begins with nats:// or tls://")
        address.only("timeout", *OPTIONS)
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
        return self._shown(*self.servers) + (f"/{self.subject}" if self.subject else "")

    def _shown(self, *servers: tuple[str, int]) -> str:
        return shown("nats" if self.tls is None else "tls", servers)

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        """Many messages at once, and one after the other where they have the same key.

        The server confirms a message when its stream has stored it, or has it already: the same one under the same id
        that came within the stream's `duplicate_window` is not stored again.
        """
        tally = Tally(messages)
        check_all(tally, None, self._check)
        publish_all(self.name, self._thread, tally, self.timeout)

    def close(self) -> None:
        self._thread.close()

    def _subject(self, message: OutgoingMessage) -> str:
        return destination_of(message, self.subject, "subject")

    def _check(self, message: OutgoingMessage) -> None:
        subject = self._subject(message)
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

    async def _connect(self) -> NATSSession:
        where = self._shown(*self.servers)
        session = NATSSession(where, self._subject, self._in_doubt, secure=self.tls is not None)
        await connect(
            session,
            servers=[self._shown(server) for server in self.servers],
            user=self.username,
            password=self.password,
            token=self.token,
            tls=None if self.tls is None else self.tls.context(),
        )
        return session


@hookimpl
def sqlqueue_publisher(url: str) -> Publisher | None:
    """A publisher to NATS JetStream for `nats://` and `tls://`."""
    return NATSPublisher.from_url(url) if url.partition(":")[0] in SCHEMES else None
