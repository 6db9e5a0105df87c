"""Which queues a consumer serves, and what plugins bring to it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from sqlqueue.broker import Broker
from sqlqueue.consumer.answers import Call
from sqlqueue.consumer.subscription import Subscription
from sqlqueue.errors import DeclarationError
from sqlqueue.observer import Observer
from sqlqueue.plugins import manager
from sqlqueue.queue import Queue


class HasQueue(Protocol):
    """What works off a queue of its own, such as one of tasks."""

    queue: Queue


#: What names a queue of a broker.
Wanted = Queue | HasQueue | str


def named(queues: Iterable[Wanted] | Wanted | None) -> Sequence[Queue | str] | None:
    """The queues that one, or several, of these name; None: all."""
    if queues is None:
        return None
    several: Iterable[Any] = queues if isinstance(queues, Iterable) and not isinstance(queues, str) else [queues]
    return [getattr(one, "queue", one) for one in several]


def subscribe(
    broker: Broker, wanted: Sequence[Queue | str] | None, observers: Sequence[Observer]
) -> list[Subscription]:
    """A subscription for each of the broker's queues that has a handler and is `wanted` (None: all).

    Raises `DeclarationError` for a wanted queue that is not there or has no handler, and where none is left.
    """
    served = [queue for queue in broker.queues if queue.registered]
    for one in wanted or ():
        if not any(one in _names(queue) for queue in broker.queues):
            names = ", ".join(queue.name for queue in broker.queues)
            raise DeclarationError(f"queues={one!r} is no queue of {broker!r}, which has: {names}")
        if not any(one in _names(queue) for queue in served):
            raise DeclarationError(f"queues={one!r} has no handler; register one with @queue.handler")
    chosen = [queue for queue in served if wanted is None or any(one in _names(queue) for one in wanted)]
    if not chosen:
        raise DeclarationError(
            f"no handler is registered on the queues of {broker!r}; register one with @queue.handler"
        )
    everyone = [*observers, *(one for one in manager().hook.sqlqueue_observers() if one is not None)]
    return [Subscription(queue, queue.registered, everyone, _wrapped) for queue in chosen if queue.registered]


def _names(queue: Queue) -> tuple["Queue | str", ...]:
    """What `queues` may say for this one."""
    return queue, queue.name, queue.spec.name, queue.spec.full_name


def _wrapped(queue: str, call: Call) -> Call:
    """The handler's call with what plugins wrap around it."""
    for plugin in manager().get_plugins():
        wrap: Callable[..., Call | None] | None = getattr(plugin, "sqlqueue_wrap_handler", None)
        call = (wrap(queue=queue, call=call) if wrap else None) or call
    return call
