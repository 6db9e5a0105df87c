"""Every error that sqlqueue raises itself; a driver's errors pass through unchanged."""

from collections.abc import Mapping
from types import MappingProxyType


class SQLQueueError(Exception):
    """The base of sqlqueue's own errors."""


class DeclarationError(SQLQueueError, ValueError):
    """A table, queue or handler is declared in a way that cannot work; raised where it is declared."""


class SchemaError(SQLQueueError):
    """The database does not hold what the declaration names; raised when a consumer starts."""


class Unsupported(SQLQueueError):
    """The database, or this release, does not serve what was asked for."""


class PoolTooSmall(SQLQueueError):
    """The pool cannot lend a single connection for the work asked of it."""


class TransactionError(SQLQueueError):
    """A handler ended its delivery's transaction itself, or went on using its connection; nothing was acknowledged."""


class EncodeError(SQLQueueError, TypeError):
    """A message or header cannot be stored; nothing was written."""


class DecodeError(SQLQueueError):
    """A stored row or payload cannot be read as the type that its handler takes."""


class PublishError(SQLQueueError):
    """A publisher could not confirm every message. `unconfirmed`: by their place in what was to be published, from 0,
    why not; where it is empty, none was confirmed."""

    def __init__(self, text: str, unconfirmed: Mapping[int, str] = MappingProxyType({})) -> None:
        super().__init__(text)
        self.unconfirmed = unconfirmed


class BrokerClosed(SQLQueueError):
    """The broker was closed; it neither enqueues nor settles any more."""


class DialectNotFound(SQLQueueError):
    """No installed package serves the URL's scheme or the pool's type."""


class PublisherNotFound(SQLQueueError):
    """No installed package publishes to the URL's scheme."""
