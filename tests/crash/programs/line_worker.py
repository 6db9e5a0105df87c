"""A consumer of FIFO lines in a process that tests kill: `python -m tests.crash.programs.line_worker URL OPTIONS`.

It says, a line each and with the machine's monotonic nanoseconds, `started <key> <id> <when>` and `done <key> <id>
<when>` by its handler, `lost <id>` for a lease that it lost, and `looked` when it found nothing more.
"""

import json
import sys
import threading
from time import monotonic_ns

from sqlqueue import Broker, Consumer, Delivery
from sqlqueue.observers import Event
from sqlqueue.spec import spec_of
from sqlqueue.testing.contract.line_tables import LineJob, by_row_lock


class Teller:
    """Says a line at a time."""

    def __init__(self) -> None:
        self._line = threading.Lock()

    def notice(self, event: Event) -> None:
        if event.kind == "lease_lost":
            self.say("lost", event.id)
        if event.kind == "looked":
            self.say("looked")

    def say(self, *words: object) -> None:
        text = " ".join(str(word) for word in words) + "\n"
        with self._line:  # one line at a time
            sys.stdout.write(text)
            sys.stdout.flush()


def main(url: str, *, row_lock: bool, lease: float, workers: int, seconds: float) -> None:
    teller, never = Teller(), threading.Event()
    with Broker(url, poll_interval=0.05, lease=lease) as broker:
        queue = broker.queue(by_row_lock(LineJob) if row_lock else spec_of(LineJob))

        @queue.handler(workers=workers)
        def handle(message: int, delivery: Delivery) -> None:
            teller.say("started", delivery.key, delivery.id, monotonic_ns())
            never.wait(seconds)
            teller.say("done", delivery.key, delivery.id, monotonic_ns())

        Consumer(broker, observers=[teller]).run_forever()


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
