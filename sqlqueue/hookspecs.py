"""What a plugin can bring. Hooks run on cold paths only; a consumer collects them once, when it starts."""

from typing import Any

import pluggy

from sqlqueue.dialect import Dialect

PROJECT = "sqlqueue"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec(firstresult=True)
def sqlqueue_dialect(source: Any) -> Dialect | None:
    """The dialect that serves `source`, a URL or a pool of the user's; None where it is not this plugin's.

    Must not connect.
    """


@hookspec(firstresult=True)
def sqlqueue_driver_connection(obj: Any) -> Any | None:
    """The driver's own connection inside `obj` (a session, a wrapper); None where it is not known here."""


@hookspec
def sqlqueue_wrap_handler(queue: str, call: Any) -> Any | None:
    """A callable to run instead of `call(message, delivery)`, usually around it; None to leave it.

    Where the handler takes batches both are lists. Called once for each start of a consumer.
    """


@hookspec
def sqlqueue_observers() -> Any | None:
    """An observer (see `sqlqueue.observer.Observer`) for every consumer that starts; None for none."""
