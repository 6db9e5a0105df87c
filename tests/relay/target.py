"""What the tests of a publisher need of its broker."""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol
from uuid import uuid4

import attrs
import pytest

from sqlqueue.publisher import OutgoingMessage, Publisher
from tests.support import availability

LIMIT = 20.0  # seconds

#: Nothing listens there.
CLOSED_PORT = 1

PASSWORD = "hush-hush"


@attrs.frozen(kw_only=True)
class Arrived:
    """A message as its consumer finds it."""

    payload: bytes
    key: str | None = None
    headers: Mapping[str, str] = attrs.field(factory=dict)
    id: str | None = None


class Way(Protocol):
    """The way from a publisher to its broker, which a test cuts."""

    @property
    def port(self) -> int: ...

    def cut(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Cut all connections; new ones are taken. `meanwhile` is called while nothing is confirmed yet that was on its
        way."""
        ...


class Target(Protocol):
    """A broker, and a destination of the test's own on it."""

    port: int
    #: A destination that the broker refuses, or has no place for.
    refused: str

    def url(self, *, port: int | None = None, login: str = "", own: bool = True, **options: object) -> str:
        """A URL to the broker, or to another port; `own`: with the test's destination. `login`: "user:password" instead
        of the right one."""
        ...

    def make(self, url: str) -> Publisher: ...

    def way(self) -> AbstractContextManager[Way]: ...

    def arrived(self) -> list[Arrived]:
        """All that has arrived at the test's destination, in its order."""
        ...


#: Makes publishers, by the settings of `Target.url`.
Make = Callable[..., Publisher]


def unique(prefix: str = "sqlqueue-test") -> str:
    return f"{prefix}-{uuid4().hex[:12]}"


def needs(broker: str) -> None:
    """Skip the test where the broker is not here; a strict run fails."""
    reason = availability.why_no_broker(broker)
    if reason is not None:
        (pytest.fail if availability.strict() else pytest.skip)(f"{broker}: {reason}")


def message(payload: str, **settings: Any) -> OutgoingMessage:
    return OutgoingMessage(payload=payload.encode(), **settings)


def payloads(arrived: list[Arrived]) -> list[str]:
    return [each.payload.decode() for each in arrived]


def at_once(count: int, run: Callable[[int], None]) -> None:
    """Run it so many times at once, each on a thread of its own; the first error is raised."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def one(number: int) -> None:
        try:
            start.wait(LIMIT)
            run(number)
        except BaseException as error:  # noqa: BLE001 - it is raised in the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    if errors:
        raise errors[0]
