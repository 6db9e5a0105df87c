"""A consumer of the order service that kills itself: `python -m tests.crash.programs.shop_worker URL OPTIONS`.

`point`: where, None for nowhere; `passes`: the how manieth time that it comes there. It says `looked` when it has found
nothing more, and `acknowledged <id>`.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from sqlqueue import Broker, Consumer, Delivery
from sqlqueue.consumer import seat
from sqlqueue.strategies.transaction import Transaction
from tests.crash.programs.worker import Teller
from tests.crash.shop import shop_on

#: From the claim to the commit, in the order in which a delivery comes by.
POINTS = (
    *("looking", "claimed", "lending", "lent"),
    *("began", "ordered", "told", "returned"),
    *("settling", "released", "committed"),
)


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


def watch(killer: Killer) -> None:
    killer.around(seat.Seat, "_look", "looking", "claimed")
    killer.around(Transaction, "lend", "lending", "lent")
    killer.around(Transaction, "take_back", "returned", None)
    killer.around(seat.Seat, "_settle", "settling", "committed")
    killer.around(Transaction, "settle_within", None, "released")


def main(url: str, *, strategy: str, point: str | None, passes: int) -> None:
    killer = Killer(point, passes)
    watch(killer)
    teller = Teller(("acknowledged", "looked"))
    with Broker(url, poll_interval=0.1, lease=1.0, pool_size=4) as broker:
        shop = shop_on(broker, strategy)

        @shop.checkouts.handler(workers=2, transactional=True)
        def handle(amount: int, delivery: Delivery) -> None:
            killer.at("began")
            shop.order(amount, delivery)
            killer.at("ordered")
            shop.tell(delivery)
            killer.at("told")

        Consumer(broker, observers=[teller], queues=[shop.checkouts]).run_forever()


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
