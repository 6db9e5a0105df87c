"""What happens in a consumer, told to whoever wants to count, trace or wait for it.

Tells observers what happens; costs one test of a flag where nobody observes.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import attrs

from sqlqueue.delivery import Delivery

log = logging.getLogger("sqlqueue")


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


def _nobody_waits() -> None: ...


@attrs.define(eq=False)
class Observers:
    """One queue's line to the observers, and to those who wait for its dead letters. An observer that fails is logged
    and never stops the consumer."""

    queue: str
    observers: Sequence[Observer] = ()
    dead_lettered: Callable[[], None] = _nobody_waits

    def tell(
        self, kind: str, delivery: Delivery | None = None, *, seconds: float | None = None, detail: Any = None
    ) -> None:
        if not self.observers:
            return
        id = attempt = None
        if delivery is not None:
            id, attempt = delivery.claim.id if delivery.id is None else delivery.id, delivery.attempt
        event = Event(kind, self.queue, id, attempt, seconds, detail)
        for observer in self.observers:
            try:
                observer.notice(event)
            except Exception:
                log.exception("an observer failed on %r", event)
