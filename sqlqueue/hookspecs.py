"""What a plugin can bring. Hooks run where a broker is made, a consumer starts, or a caller's connection is given."""

from collections.abc import Callable
from typing import Any

import pluggy

from sqlqueue.dialect import Dialect
from sqlqueue.publisher import Publisher

PROJECT = "sqlqueue"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec(firstresult=True)
def sqlqueue_dialect(source: Any) -> Dialect | None:
    """The dialect that serves `source`, a URL or a pool of the user's; None where it is not this plugin's.

    Must not connect.
    """


@hookspec(firstresult=True)
def sqlqueue_publisher(url: str) -> Publisher | None:
    """The publisher to a URL; None where it is not this plugin's. Must not connect. Raises `DeclarationError` for a URL
    that cannot be one of its own."""


@hookspec(firstresult=True)
def sqlqueue_driver_connection(obj: Any) -> Any | None:
    """The driver's own connection inside `obj` (a session, a wrapper); None where it is not known here."""


@hookspec(firstresult=True)
def sqlqueue_after_commit(obj: Any, call: Callable[[], None]) -> bool | None:
    """Have `call()` run when what was written through `obj` (what `enqueue(connection=…)` was given) is committed, at
    once where it is already, and never after a rollback; True where it will, None where that is not known here.

    The same `call` may come again in one transaction; running it once is enough.
    """


@hookspec
def sqlqueue_wrap_handler(queue: str, call: Any) -> Any | None:
    """A callable to run instead of `call(message, delivery)`, usually around it; None to leave it.

    Where the handler takes batches both are lists. Called once for each start of a consumer.
    """


@hookspec
def sqlqueue_observers() -> Any | None:
    """An observer (see `sqlqueue.observers.Observer`) for every consumer that starts; None for none."""
