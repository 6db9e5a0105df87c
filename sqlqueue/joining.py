"""Rows that are enqueued in a delivery's transaction wake their consumers once that is committed."""

from collections.abc import Callable, Sequence
from typing import Any

#: By the identity of the driver's connection, from the loan to a handler until it returns.
_waiting: dict[int, list[Callable[[], None]]] = {}


def begin(connection: Any) -> None:
    """From here on this connection is in a delivery's transaction."""
    _waiting[id(connection)] = []


def after_commit(connection: Any, call: Callable[[], None]) -> bool:
    """Have `call` called when the delivery is acknowledged; False where the connection is no delivery's."""
    calls = _waiting.get(id(connection))
    if calls is None:
        return False
    calls.append(call)
    return True


def end(connection: Any) -> Sequence[Callable[[], None]]:
    """The handler has returned: what is to be called once the transaction is committed."""
    return _waiting.pop(id(connection), ())
