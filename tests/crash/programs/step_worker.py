"""A consumer of walks that is killed, or kills itself: `python -m tests.crash.programs.step_worker URL OPTIONS`.

`point`: where it kills itself, None for nowhere; `passes`: the how manieth time that it comes there. It says `ready`,
`looked` when it has found nothing more, and what is worth a warning.
"""

import json
import logging
import sys

from sqlqueue import Broker, Consumer
from tests.crash.programs.killing import Killer, watch_connection_workers, watch_dispatcher
from tests.crash.programs.worker import Teller
from tests.crash.walks import MIXED, PLAIN, Trace, process, walks_on

EVENTS = ("gone", "lease_lost", "looked", "parked", "retried", "trouble")

#: From the claim to the commit, in the order in which a step comes by.
POINTS = {
    MIXED: ("claimed", "lent", "began", "wrote", "returned", "settling", "released", "committed"),
    PLAIN: ("claimed", "began", "returned", "settling", "committed"),
}


def main(
    url: str,
    *,
    kind: str,
    workers: int,
    work: float,
    trace: str,
    lease: float,
    point: str | None = None,
    passes: int = 0,
) -> None:
    killer = Killer(point, passes)
    if point is not None:
        (watch_dispatcher if kind == PLAIN else watch_connection_workers)(killer)
    process.trace, process.at, process.work = Trace(trace), killer.at, work
    teller = Teller(EVENTS)
    logging.getLogger("sqlqueue").addHandler(teller)
    with Broker(url, poll_interval=0.1, lease=lease, pool_size=workers + 4) as broker:
        walks_on(broker, kind, workers)
        teller.say("ready")
        Consumer(broker, observers=[teller]).run_forever()


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
