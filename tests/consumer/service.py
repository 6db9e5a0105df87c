"""A service in a process of its own, steered by its standard input: `python -m tests.consumer.service URL OPTIONS`.

It says what happens, a line each. `end` lets a handler end; a message below 0 has its handler fork.
"""

import json
import logging
import os
import sys
import threading
from typing import Any

from sqlqueue import Broker, Consumer
from sqlqueue.observers import Event
from tests.consumer.tables import TABLES

LIMIT = 60.0  # seconds after which a test has given up


class Teller:
    """Tells each event, and what the handlers do."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def notice(self, event: Event) -> None:
        self.say(event.kind, event.id)

    def say(self, *words: object) -> None:
        with self._lock:  # one line at a time
            sys.stdout.write(" ".join(str(word) for word in words) + "\n")
            sys.stdout.flush()


def fork(teller: Teller) -> None:
    """Be two for a while: the child waits to be ended, the parent tells by what it was."""
    child = os.fork()
    if not child:
        os.write(1, f"forked {os.getpid()}\n".encode())  # from here on Python hears signals
        threading.Event().wait(LIMIT)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    teller.say("child", os.WTERMSIG(status) if os.WIFSIGNALED(status) else "ended by itself")


def main(
    url: str, *, strategy: str = "lease", notify: bool = False, workers: int = 1, prefetch: int = 0, **options: Any
) -> None:
    teller, passes = Teller(), threading.Semaphore(0)
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="log: %(message)s")
    with Broker(url, poll_interval=0.05, notify=notify) as broker:
        queue = broker.queue(TABLES[strategy])

        @queue.handler(workers=workers, prefetch=prefetch)
        def handle(number: int) -> None:
            teller.say("handling", number)
            if number < 0:
                fork(teller)
            elif not passes.acquire(timeout=LIMIT):
                raise AssertionError("the test never let it end")
            teller.say("handled", number)

        def listen() -> None:
            for _ in sys.stdin:
                passes.release()

        threading.Thread(target=listen, daemon=True).start()
        Consumer(broker, observers=[teller], **options).run_forever()
    teller.say("over")


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
