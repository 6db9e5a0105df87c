"""A consumer in a process that tests kill, stop and race: `python -m tests.crash.programs.worker URL OPTIONS`.

It says what happens, a line each: `started <id> <attempt>` and `done <id>` by its handler, `log <message>` for each
warning, and each event of `events` as `<kind> <id> <monotonic seconds>`.
"""

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from time import monotonic
from typing import Any

from sqlqueue import Broker, Consumer, Delivery, Retry
from sqlqueue.observers import Event
from tests.consumer.helpers import Mail
from tests.consumer.tables import TABLES

LIMIT = 60.0  # seconds after which a test has given up
EVENTS = ("acknowledged", "extended", "gone", "lease_lost", "looked", "parked", "retried", "trouble")


class Teller(logging.Handler):
    """Tells events, warnings and what handlers do."""

    def __init__(self, events: Sequence[str]) -> None:
        super().__init__(logging.WARNING)
        self._events, self._line = events, threading.Lock()

    def notice(self, event: Event) -> None:
        if event.kind in self._events:
            self.say(event.kind, event.id, f"{monotonic():.3f}")

    def emit(self, record: logging.LogRecord) -> None:
        self.say("log", record.getMessage().replace("\n", " "))

    def say(self, *words: object) -> None:
        text = " ".join(str(word) for word in words) + "\n"
        with self._line:  # one line at a time
            sys.stdout.write(text)
            sys.stdout.flush()


class Acts:
    """What a handler can be told to do."""

    def __init__(self, broker: Broker, seconds: float) -> None:
        self._seconds = seconds
        self._told: SimpleQueue[str] = SimpleQueue()
        self._mails = broker.queue(Mail, group="copies")

    def listen(self) -> None:
        for line in sys.stdin:
            self._told.put(line.strip())

    def at_once(self, number: int) -> None:
        """Succeed."""

    def wait(self, number: int) -> None:
        """End as the test's next line says."""
        told = self._told.get(timeout=LIMIT)
        if told == "retry":
            raise Retry(LIMIT)
        if told == "fail":
            raise ValueError("the test told it to fail")

    def die(self, number: int) -> None:
        """Take the process along, without a word."""
        os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait(LIMIT)

    def last(self, number: int) -> None:
        """Take `seconds` beside two threads that never rest."""
        over = threading.Event()

        def burn() -> None:
            while not over.is_set():
                sum(range(10_000))

        threads = [threading.Thread(target=burn) for _ in range(2)]
        for thread in threads:
            thread.start()
        over.wait(self._seconds)
        over.set()
        for thread in threads:
            thread.join()

    def copy(self, number: int) -> None:
        """Write a row of another table."""
        self._mails.enqueue(number)


def main(
    url: str,
    *,
    act: str = "at_once",
    lease: float = 1.0,
    poll: float = 0.05,
    workers: int = 1,
    prefetch: int = 0,
    max_attempts: int | None = None,
    seconds: float = 0.0,
    strategy: str = "lease",
    events: Sequence[str] = EVENTS,
) -> None:
    teller = Teller(events)
    logging.getLogger("sqlqueue").addHandler(teller)
    with Broker(url, poll_interval=poll, lease=lease, pool_size=workers + 4) as broker:
        acts = Acts(broker, seconds)
        work: Callable[[int], Any] = getattr(acts, act)

        @broker.queue(TABLES[strategy]).handler(workers=workers, prefetch=prefetch, max_attempts=max_attempts)
        def handle(number: int, delivery: Delivery) -> None:
            teller.say("started", delivery.id, delivery.attempt)
            work(number)
            teller.say("done", delivery.id)

        threading.Thread(target=acts.listen, daemon=True).start()
        Consumer(broker, observers=[teller]).run_forever()
    teller.say("over")


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
