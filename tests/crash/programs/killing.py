"""How a consumer's process kills itself at a point of a row's way from the claim to the commit."""

import os
import signal
from collections.abc import Callable
from typing import Any

from sqlqueue.consumer import connection_worker
from sqlqueue.consumer.dispatcher import Dispatcher
from sqlqueue.strategies.claim import Turn, Turned
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.transaction import Transaction


class Killer:
    def __init__(self, point: str | None, passes: int) -> None:
        self._point, self._left = point, passes

    def at(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str, before: str | None, after: str | None) -> None:
        """Come by these points before and after a function of ours."""
        inner: Callable[..., Any] = getattr(owner, name)

        def function(*args: Any, **named: Any) -> Any:
            if before is not None:
                self.at(before)
            result = inner(*args, **named)
            if after is not None:
                self.at(after)
            return result

        setattr(owner, name, function)


def watch_connection_workers(killer: Killer) -> None:
    """Come by the points of a queue whose rows hold a connection each, from the claim to the commit."""
    killer.around(connection_worker.ConnectionWorker, "_claim", "looking", "claimed")
    killer.around(Transaction, "lend", "lending", "lent")
    killer.around(Transaction, "take_back", "returned", None)
    killer.around(connection_worker.ConnectionWorker, "_settle", "settling", "committed")
    killer.around(Transaction, "settle_within", None, "released")


def watch_dispatcher(killer: Killer) -> None:
    """Come by the points of a queue whose rows hold no connection: one thread settles and claims for all workers."""
    inner: Callable[..., Turned] = Lease.turn

    def turn(self: Lease, connection: Any, turn: Turn) -> Turned:
        if turn.settlements:
            killer.at("settling")
        if turn.limit:
            killer.at("looking")
        turned = inner(self, connection, turn)
        if turn.settlements:
            killer.at("committed")
        if turned.claims:
            killer.at("claimed")
        return turned

    setattr(Lease, "turn", turn)  # noqa: B010 - a method of another class
    killer.around(Dispatcher, "finish", "returned", None)
