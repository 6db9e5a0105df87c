"""A target in memory, for tests: what was published, failures on demand, and waits on demand."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from sqlqueue.errors import DeclarationError, PublishError
from sqlqueue.hookspecs import hookimpl
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay.targets.publishing import BEHIND

SCHEME = "memory"

#: Seconds that anything here waits at most.
LIMIT = 10.0

_named: dict[str, "MemoryPublisher"] = {}
_naming = threading.Lock()


class MemoryPublisher:
    """Remembers what is published, in order; safe from any thread.

    The URL `memory://name` is the publisher that `MemoryPublisher.named(name)` gives, until that is closed.
    """

    def __init__(self, name: str = "") -> None:
        self.name = f"{SCHEME}://{name}"
        self.closed = False
        self._changed = threading.Condition()
        self._messages: list[OutgoingMessage] = []
        self._calls: list[Sequence[OutgoingMessage]] = []
        self._errors: deque[BaseException] = deque()
        self._refused: Callable[[OutgoingMessage], bool] | None = None
        self._held = False

    @classmethod
    def named(cls, name: str) -> "MemoryPublisher":
        """The process's publisher of that name; a new one where there is none, or it was closed."""
        with _naming:  # whoever comes first makes it for both
            if name not in _named or _named[name].closed:
                _named[name] = cls(name)
            return _named[name]

    # -- what a test asks -------------------------------------------------------------------------------------

    @property
    def messages(self) -> list[OutgoingMessage]:
        """What was confirmed, in order."""
        with self._changed:  # a copy nobody appends to
            return list(self._messages)

    @property
    def calls(self) -> list[Sequence[OutgoingMessage]]:
        """What each call of `publish` was given, in the order in which they began."""
        with self._changed:  # a copy nobody appends to
            return list(self._calls)

    def wait_for(self, count: int, timeout: float = LIMIT) -> list[OutgoingMessage]:
        """Wait until `count` messages were confirmed; all that were. `AssertionError` after `timeout` seconds."""
        return self._wait(lambda: len(self._messages) >= count, self._messages, timeout)

    def wait_for_calls(self, count: int, timeout: float = LIMIT) -> list[Sequence[OutgoingMessage]]:
        """Wait until `publish` was called `count` times, whatever came of it; what it was given each time."""
        return self._wait(lambda: len(self._calls) >= count, self._calls, timeout)

    def _wait(self, there: Callable[[], bool], found: list[Any], timeout: float) -> list[Any]:
        with self._changed:  # the wait gives the lock up
            if not self._changed.wait_for(there, timeout):
                raise AssertionError(f"only this was published after {timeout} s: {found}")
            return list(found)

    # -- what a test demands ----------------------------------------------------------------------------------

    def fail(self, error: BaseException, times: int = 1) -> None:
        """Have the next `times` calls of `publish` raise `error`, and take nothing."""
        with self._changed:  # no call gets half of them
            self._errors.extend([error] * times)

    def refuse(self, where: Callable[[OutgoingMessage], bool]) -> None:
        """Confirm no message for which `where` holds, from now on."""
        with self._changed:  # not in the midst of a call
            self._refused = where

    def accept(self) -> None:
        """Confirm every message, from now on."""
        with self._changed:  # not in the midst of a call
            self._refused = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """While it lasts, `publish` waits before it does anything."""
        with self._changed:  # whoever comes now waits
            self._held = True
        try:
            yield
        finally:
            with self._changed:  # those who wait look at it
                self._held = False
                self._changed.notify_all()

    # -- the publisher ----------------------------------------------------------------------------------------

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        with self._changed:  # one call at a time, so that each is whole
            self._calls.append(tuple(messages))
            self._changed.notify_all()
            end = monotonic() + LIMIT
            while self._held and not self.closed:
                if not self._changed.wait(max(0.0, end - monotonic())):
                    raise PublishError(f"{self.name}: held for longer than {LIMIT} s")
            if self.closed:
                raise PublishError(f"{self.name} is closed")
            if self._errors:
                raise self._errors.popleft()
            unconfirmed: dict[int, str] = {}
            failed_keys: set[str] = set()
            for index, message in enumerate(messages):
                if message.key in failed_keys:
                    unconfirmed[index] = BEHIND
                elif self._refused is not None and self._refused(message):
                    unconfirmed[index] = "refused"
                    failed_keys |= set() if message.key is None else {message.key}
                else:
                    self._messages.append(message)
            self._changed.notify_all()
        if unconfirmed:
            raise PublishError(f"{self.name}: {len(unconfirmed)} of {len(messages)} not confirmed", unconfirmed)

    def close(self) -> None:
        with self._changed:  # those who wait go on, to nothing
            self.closed = True
            self._changed.notify_all()


@hookimpl
def sqlqueue_publisher(url: str) -> MemoryPublisher | None:
    scheme, _, name = url.partition("://")
    if scheme != SCHEME:
        return None
    if not name:
        raise DeclarationError(f"{url!r} names no publisher in memory; give memory://name")
    return MemoryPublisher.named(name)
