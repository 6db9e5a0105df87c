"""A producer that its test kills half way: `python -m tests.crash.programs.dying URL OPTIONS`.

`many`: it hands `enqueue_many` half of its rows, says `half`, and waits for ever. `locked`: it writes one row with
plain SQL on a SQLite file, says `locked` with its transaction open, and waits for ever.
"""

import json
import sqlite3
import sys
import threading
from collections.abc import Iterator

from sqlqueue import Broker
from tests.consumer.helpers import Job

LIMIT = 60.0  # seconds after which a test has given up


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def wait() -> None:
    threading.Event().wait(LIMIT)


def numbers(count: int) -> Iterator[int]:
    for number in range(count):
        if number == count // 2:
            say("half")
            wait()
        yield number


def main(url: str, *, act: str, rows: int = 1000) -> None:
    if act == "many":
        with Broker(url) as broker:
            broker.queue(Job).enqueue_many(numbers(rows))
        return
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("INSERT INTO jobs (payload, attempt) VALUES ('-1', 0)")
    say("locked")
    wait()


if __name__ == "__main__":
    main(sys.argv[1], **json.loads(sys.argv[2]))
