"""A producer in a process of its own: `python -m tests.crash.programs.writer URL OPTIONS` enqueues one row at a time.

It says `ready`, waits for a line, writes, and says `wrote <rows> <seconds of the slowest>`; an error ends it.
"""

import json
import sys
from time import monotonic

from sqlqueue import Broker
from tests.consumer.helpers import Job


def main(url: str, *, rows: int) -> None:
    with Broker(url) as broker:
        queue = broker.queue(Job)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        slowest = 0.0
        for number in range(rows):
            begun = monotonic()
            queue.enqueue(number)
            slowest = max(slowest, monotonic() - begun)
    sys.stdout.write(f"wrote {rows} {slowest:.3f}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
