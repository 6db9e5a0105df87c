"""A relay in a process that tests kill: `python -m tests.crash.programs.relay_worker URL OPTIONS`; it says `looked`."""

import json
import sys

from sqlqueue import Broker, Consumer
from sqlqueue.relay import relay
from tests.crash.outbox import bus_on, events_by
from tests.crash.programs.worker import Teller


def main(url: str, *, target: str, strategy: str, workers: int, batch: int | None) -> None:
    with Broker(target) as there, Broker(url, poll_interval=0.05, lease=2.0) as broker:
        relay(broker.queue(events_by(strategy)), to=bus_on(there), workers=workers, batch=batch, retry=0.05)
        Consumer(broker, observers=[Teller(("looked",))]).run_forever()


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
