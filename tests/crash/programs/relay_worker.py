"""A relay in a process that tests kill: `python -m tests.crash.programs.relay_worker URL OPTIONS`; it says `looked`
and the events of `says`. Its `target` is a database with the table of what arrived, or a broker's URL."""

import json
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from sqlqueue import Broker, Consumer
from sqlqueue.publisher import Publisher
from sqlqueue.relay import relay
from tests.crash.outbox import bus_on, events_by
from tests.crash.programs.worker import Teller


def main(
    url: str,
    *,
    target: str,
    strategy: str,
    workers: int,
    batch: int | None,
    says: Sequence[str] = (),
    lease: float = 2.0,
) -> None:
    with ExitStack() as until_end:
        to: Publisher | str = target
        if target.startswith("sqlite:"):
            to = bus_on(until_end.enter_context(Broker(target)))
        broker = until_end.enter_context(Broker(url, poll_interval=0.05, lease=lease))
        relay(broker.queue(events_by(strategy)), to=to, workers=workers, batch=batch, retry=0.05)
        Consumer(broker, observers=[Teller(("looked", *says))]).run_forever()


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
