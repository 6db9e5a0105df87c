"""What happens in a consumer, told to whoever wants to count, trace or wait for it."""

from typing import Any, Protocol

import attrs


@attrs.frozen
class Event:
    """One thing that happened to a queue.

    `kind` is one of: `claimed`, `started`, `acknowledged`, `retried`, `advanced` (a task went on to its next step),
    `dropped`, `parked`, `dead_lettered`, `released`, `lease_lost`, `gone`, `looked` (a claim that found fewer rows than
    it asked for), `extended`, `trouble`, `recovered`. `seconds` is how long the handler ran, where it did.
    """

    kind: str
    queue: str
    id: Any = None
    attempt: int | None = None
    seconds: float | None = None
    detail: Any = None


class Observer(Protocol):
    """Called from a consumer's threads: `notice` must be quick, thread-safe and must not raise."""

    def notice(self, event: Event) -> None: ...
