"""A consumer that notes when each of its handlers begins and ends: `python -m tests.crash.programs.racer URL OPTIONS`.

It says `ready`, `looked` when it has found nothing, and what is worth a warning.
"""

import json
import logging
import os
import random
import sys
import threading
from time import monotonic

from sqlqueue import Broker, Consumer, Delivery
from tests.consumer.tables import TABLES
from tests.crash.programs.worker import Teller

EVENTS = ("gone", "lease_lost", "looked", "parked", "retried", "trouble")


class Notes:
    """Lines in a file that several processes append to, each line whole."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)

    def note(self, word: str, row: int) -> None:
        os.write(self._file, f"{word} {os.getpid()} {row} {monotonic():.9f}\n".encode())


def main(url: str, *, strategy: str, workers: int, work: float, notes: str) -> None:
    noted, never = Notes(notes), threading.Event()
    teller = Teller(EVENTS)
    logging.getLogger("sqlqueue").addHandler(teller)
    with Broker(url, poll_interval=0.2, lease=1.0, pool_size=workers + 2) as broker:

        @broker.queue(TABLES[strategy]).handler(workers=workers)
        def handle(number: int, delivery: Delivery) -> None:
            noted.note("begin", delivery.id)
            if work:
                never.wait(random.uniform(0, work))
            noted.note("end", delivery.id)

        teller.say("ready")
        Consumer(broker, observers=[teller]).run_forever()


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
