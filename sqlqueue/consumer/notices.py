"""Tells observers what happens; costs one test of a flag where nobody observes."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from sqlqueue.delivery import Delivery
from sqlqueue.observer import Event, Observer

log = logging.getLogger("sqlqueue")


def _nobody_waits() -> None: ...


@attrs.define(eq=False)
class Notices:
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
