"""What publishers to brokers share: the result of a publish, the checks of its messages, and the client they hold."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

import attrs

from sqlqueue.errors import PublishError
from sqlqueue.publisher import OutgoingMessage

#: Headers under which a target without a place of its own for them carries a message's id and key.
ID_HEADER = "message-id"
KEY_HEADER = "message-key"

#: Why a message does not count that came behind one that was not confirmed.
BEHIND = "an earlier message of its key was not confirmed"

CLOSED = "the publisher is closed; make a new one"


class Refused(Exception):  # noqa: N818 - no error of ours: it says why a message is not confirmed
    """A message was not confirmed."""


# -- the result of a publish --------------------------------------------------------------------------------------


@attrs.define(eq=False)
class PublishResult:
    """What became of the messages of one publish, by their indexes. For one thread at a time.

    Nothing counts as confirmed that the target has not confirmed, and nothing that overtook an earlier message of its
    key.
    """

    messages: Sequence[OutgoingMessage]
    _confirmed: set[int] = attrs.field(init=False, factory=set)
    _refused: dict[int, str] = attrs.field(init=False, factory=dict)
    _refused_keys: set[str] = attrs.field(init=False, factory=set)

    def confirm(self, index: int) -> None:
        self._confirmed.add(index)

    def refuse(self, index: int, why: str) -> None:
        self._refused.setdefault(index, why)
        key = self.messages[index].key
        if key is not None:
            self._refused_keys.add(key)

    def is_known(self, index: int) -> bool:
        return index in self._confirmed or index in self._refused

    def is_open(self, index: int) -> bool:
        """Whether the message may be sent: it is neither confirmed nor refused, and none of its key was refused."""
        return not self.is_known(index) and self.messages[index].key not in self._refused_keys

    def open_indexes(self) -> list[int]:
        return [index for index in range(len(self.messages)) if self.is_open(index)]

    def open_by_key(self) -> list[list[int]]:
        """The open indexes: those of one key in one list, in their order; a message without a key by itself."""
        by_key: dict[object, list[int]] = {}
        for index in self.open_indexes():
            key = self.messages[index].key
            by_key.setdefault(index if key is None else key, []).append(index)
        return list(by_key.values())

    def raise_unconfirmed(self, name: str, otherwise: str) -> None:
        """Raise `PublishError` unless all are confirmed; `otherwise`: why, where the target said nothing of one."""
        unconfirmed: dict[int, str] = {}
        keys: set[str] = set()
        for index, message in enumerate(self.messages):
            if index not in self._confirmed or message.key in keys:
                unconfirmed[index] = self._refused.get(index, BEHIND if message.key in keys else otherwise)
                if message.key is not None:
                    keys.add(message.key)
        if unconfirmed:
            index, why = next(iter(unconfirmed.items()))
            counted = f"{len(unconfirmed)} of {len(self.messages)} messages not confirmed"
            raise PublishError(f"{name}: {counted}; message {index}: {why}", unconfirmed)


# -- what no target takes, refused before anything is sent --------------------------------------------------------


def check_messages(result: PublishResult, max_bytes: int | None, also: Callable[[OutgoingMessage], object]) -> None:
    """Refuse those messages that are not made of bytes and text, that are longer than a target takes, or that `also`
    refuses."""
    for index, message in enumerate(result.messages):
        try:
            _check(message, max_bytes)
            also(message)
        except Refused as error:
            result.refuse(index, str(error))


def _check(message: OutgoingMessage, max_bytes: int | None) -> None:
    if not isinstance(message.payload, bytes):
        raise Refused(f"the payload is of type {type(message.payload).__name__}; encode it to bytes")
    if max_bytes is not None and len(message.payload) > max_bytes:
        raise Refused(
            f"the payload has {len(message.payload)} bytes, more than max_bytes={max_bytes}; send less, or raise "
            "max_bytes to what the broker takes"
        )
    texts: list[tuple[str, Any]] = [("the destination", message.destination), ("the key", message.key)]
    texts = [(what, text) for what, text in (*texts, ("the id", message.id)) if text is not None]
    for name, value in message.headers.items():
        texts += ("a header's name", name), (f"the header {name!r}", value)
    for what, text in texts:
        if not isinstance(text, str):
            raise Refused(f"{what} is of type {type(text).__name__}; give text")
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Refused(f"{what} holds what UTF-8 cannot write: {text!r}; give other text") from None


def destination_of(message: OutgoingMessage, own: str | None, setting: str) -> str:
    """Where a message goes: its own destination, else the publisher's."""
    destination = message.destination or own
    if not destination:
        raise Refused(f"it has no destination, and the publisher has no {setting} of its own; give one of the two")
    return destination


# -- the client that a publisher holds ----------------------------------------------------------------------------


class Client(Protocol):
    """What a publisher sends by."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Client)


@attrs.define(eq=False)
class ClientHolder(Generic[T]):
    """At most one client, opened by `get()`, by each process for itself; none after `close()`. For any thread."""

    _open: Callable[[], T]
    _client: T | None = attrs.field(init=False, default=None)
    _closed: bool = attrs.field(init=False, default=False)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)

    def __attrs_post_init__(self) -> None:
        _holders.add(self)

    def get(self) -> T:
        """Raises `Refused` once it is closed."""
        with self._lock:  # whether a client is there, and which
            if self._closed:
                raise Refused(CLOSED)
            if self._client is None:
                self._client = self._open()
            return self._client

    def drop(self, client: T) -> None:
        """Close a client that has become useless; the next `get()` opens another."""
        with self._lock:  # whether it is still the one
            if self._client is not client:
                return
            self._client = None
        client.close()

    def close(self) -> None:
        with self._lock:  # who closes it
            self._closed, client, self._client = True, self._client, None
        if client is not None:
            client.close()

    def forked(self) -> None:
        """In a child: the client is the parent's. Its threads are not here, and its sockets are not to be used."""
        self._lock = threading.Lock()
        if self._client is not None:
            _of_parents.append(self._client)
            self._client = None


_holders: WeakSet[ClientHolder[Any]] = WeakSet()

#: What a forked child got from its parent: kept, because its end would reach for the parent's threads and sockets.
_of_parents: list[Any] = []


def _forked() -> None:
    for holder in list(_holders):
        holder.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
