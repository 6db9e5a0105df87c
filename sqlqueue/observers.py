"""Events that tell observers what happens in a consumer: to count it, trace it, or wait for it."""

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
    """All observers of one queue, told of one event at a time. An observer that fails is logged and never stops the
    consumer.

    `any`: whether there are observers; without them no caller makes an event. `dead_lettered` is called whenever a row
    of the queue became a dead letter, for the consumers of the queue that holds those.
    """

    queue: str
    _observers: Sequence[Observer] = ()
    dead_lettered: Callable[[], None] = _nobody_waits
    any: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.any = bool(self._observers)

    def tell(
        self, kind: str, delivery: Delivery | None = None, *, seconds: float | None = None, detail: Any = None
    ) -> None:
        """Tell all observers of an event of this kind."""
        id = attempt = None
        if delivery is not None:
            id, attempt = delivery.claim.id if delivery.id is None else delivery.id, delivery.claim.attempt
        event = Event(kind, self.queue, id, attempt, seconds, detail)
        for observer in self._observers:
            try:
                observer.notice(event)
            except Exception:
                log.exception("an observer failed on %r", event)
