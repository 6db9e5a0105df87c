"""Another program that writes jobs: python -m benchmarks.producer URL plain|enqueue COUNT

Each job carries the moment at which its insert began; a line on standard output says when it was committed, both by
the clock that all processes of one machine share. It waits between inserts, so that each finds the queue idle.
"""

import json
import random
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from sqlqueue import Broker

PAUSE = 0.02  # seconds between inserts, more or less by half: no rhythm for a watcher to fall into


def main(url: str, how: str, count: int) -> None:
    with ExitStack() as until_end:
        put = (enqueuing if how == "enqueue" else inserting)(url, until_end)
        for number in range(count):
            time.sleep(PAUSE * random.uniform(0.5, 1.5))
            put({"number": number, "began": time.monotonic_ns(), "filling": "x" * 50})
            print(number, time.monotonic_ns())


def enqueuing(url: str, until_end: ExitStack) -> Callable[[Any], Any]:
    from benchmarks.jobs import Job

    broker = until_end.enter_context(Broker(url, notify=True))
    return broker.queue(Job).enqueue


def inserting(url: str, until_end: ExitStack) -> Callable[[Any], Any]:
    if url.startswith("sqlite:"):
        import sqlite3

        connection: Any = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None, timeout=10)
        sql = "INSERT INTO bench_jobs (payload) VALUES (?)"
    else:
        import psycopg

        connection = psycopg.connect(url, autocommit=True)
        sql = "INSERT INTO bench_jobs (payload) VALUES (%s)"
    until_end.callback(connection.close)
    return lambda message: connection.execute(sql, (json.dumps(message).encode(),))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
