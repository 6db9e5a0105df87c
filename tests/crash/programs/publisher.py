"""A service that is killed before it sends: `python -m tests.crash.programs.publisher URL OPTIONS`.

It publishes `sent` messages, which arrive in the queue, and one more, whose record is there when it says `recorded`.
"""

import json
import sys
import threading
from collections.abc import Sequence

from sqlqueue import Broker
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay import Tracking
from sqlqueue.testing.contract.tables import KeptJob
from sqlqueue.testing.contract.tracked import Outbox, arrive, message

LIMIT = 60.0  # seconds after which a test has given up


class Stuck:
    """A broker that takes so many messages, and then hangs."""

    name = "stuck"

    def __init__(self, broker: Broker, takes: int) -> None:
        self._queue, self._left = broker.queue(KeptJob), takes

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        if not self._left:
            sys.stdout.write("recorded\n")
            sys.stdout.flush()
            threading.Event().wait(LIMIT)
        self._left -= 1
        arrive(self._queue, *messages)

    def close(self) -> None:
        pass


def main(url: str, *, sent: int) -> None:
    with Broker(url) as broker:
        publisher = Tracking(broker, Outbox).publisher(Stuck(broker, sent))
        for number in range(sent + 1):
            publisher.publish([message(str(number))])


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
