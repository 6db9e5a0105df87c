"""A consumer whose steps end as its test says: `python -m tests.crash.programs.step_holder URL OPTIONS`.

It reads lines: `on`, `delay <seconds>` and `done` end a step; with `waits` it says `ready`, and its first line begins.
It says `started <number> <attempt> <seconds since the epoch>` when a step begins, and has written where it is a
transactional one, `stopping` when it is asked to stop, each event of `EVENTS` as `<kind> <id> <monotonic seconds>`, and
`log <message>` for each warning.
"""

import json
import logging
import sys
import threading
from queue import SimpleQueue
from time import time

from sqlqueue import Broker, Consumer
from sqlqueue.steps import Next, StepContext
from tests.crash.holding import Held, HeldWriting, held_on
from tests.crash.programs.worker import LIMIT, Teller

EVENTS = ("acknowledged", "advanced", "extended", "gone", "lease_lost", "looked", "parked", "retried", "trouble")


class Steered(Consumer):
    """Tells when it is asked to stop."""

    def __init__(self, broker: Broker, teller: Teller) -> None:
        super().__init__(broker, observers=[teller])
        self._teller = teller

    def request_stop(self) -> None:
        super().request_stop()
        self._teller.say("stopping")


class Told:
    """What the test says, for one step after the other."""

    def __init__(self, teller: Teller) -> None:
        self._teller, self._lines = teller, SimpleQueue[str]()

    def listen(self) -> None:
        for line in sys.stdin:
            self._lines.put(line.strip())

    def next(self) -> str:
        return self._lines.get(timeout=LIMIT)

    def hold(self, step: Held | HeldWriting, context: StepContext) -> Next:
        self._teller.say("started", step.number, context.attempt, f"{time():.6f}")
        word, *rest = self.next().split()
        following = type(step)(step.number + 1)
        if word == "done":
            return Next.done()
        return Next.delay(following, float(rest[0])) if word == "delay" else Next.now(following)


def main(
    url: str,
    *,
    writing: bool = False,
    beside: bool = False,
    lease: float = 1.0,
    poll: float = 0.05,
    retry_limit: int = 5,
    waits: bool = False,
) -> None:
    teller = Teller(EVENTS)
    logging.getLogger("sqlqueue").addHandler(teller)
    told = Told(teller)
    Held.hold = HeldWriting.hold = told.hold
    Held.retry_limit = HeldWriting.retry_limit = retry_limit
    threading.Thread(target=told.listen, daemon=True).start()
    with Broker(url, poll_interval=poll, lease=lease) as broker:
        held_on(broker, writing=writing, beside=beside)
        if waits:
            teller.say("ready")
            told.next()
        Steered(broker, teller).run_forever()
    teller.say("over")


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
