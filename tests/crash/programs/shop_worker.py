"""A consumer of the order service that kills itself: `python -m tests.crash.programs.shop_worker URL OPTIONS`.

`point`: where, None for nowhere; `passes`: the how manieth time that it comes there. It says `looked` when it has found
nothing more, and `acknowledged <id>`.
"""

import json
import sys

from sqlqueue import Broker, Consumer, Delivery
from tests.crash.programs.killing import Killer, watch_connection_workers
from tests.crash.programs.worker import Teller
from tests.crash.shop import shop_on

#: From the claim to the commit, in the order in which a delivery comes by.
POINTS = (
    *("looking", "claimed", "lending", "lent"),
    *("began", "ordered", "told", "returned"),
    *("settling", "released", "committed"),
)


def main(url: str, *, strategy: str, point: str | None, passes: int) -> None:
    killer = Killer(point, passes)
    watch_connection_workers(killer)
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
