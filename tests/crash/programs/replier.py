"""A service that is killed while it publishes a reply: `python -m tests.crash.programs.replier URL OPTIONS`.

Its handler is a tracked one, and its queue has one message; it says `replying` when the handler has returned.
"""

import sys
import threading
from collections.abc import Sequence

from sqlqueue import Broker, Consumer
from sqlqueue.publisher import OutgoingMessage
from sqlqueue.relay import Tracking
from sqlqueue.testing.contract.tables import KeptJob
from sqlqueue.testing.contract.tracked import Outbox

LIMIT = 60.0  # seconds after which a test has given up


class Stuck:
    """A broker that hangs."""

    name = "stuck"

    def publish(self, messages: Sequence[OutgoingMessage]) -> None:
        sys.stdout.write("replying\n")
        sys.stdout.flush()
        threading.Event().wait(LIMIT)

    def close(self) -> None:
        pass


def main(url: str) -> None:
    with Broker(url) as broker:
        handler = Tracking(broker, Outbox).consumer(lambda text: text)
        broker.queue(KeptJob).handler(reply_to=Stuck())(handler)
        Consumer(broker).run_until_idle(LIMIT)


if __name__ == "__main__":
    main(sys.argv[1])
