"""Locks keys as it is told, line by line, and says what came of it."""

import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from sqlqueue.errors import Unsupported
from sqlqueue_sqlite.database import parse
from sqlqueue_sqlite.locks import FileLocks, WholeFile


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def count(locks: FileLocks, key: str, path: str, times: int) -> int:
    """Add to the number in a file, which goes wrong unless the lock keeps everybody else out."""
    done = 0
    while done < times:
        if locks.try_lock(key):
            number = int(Path(path).read_text())
            Path(path).write_text(str(number + 1))
            done += locks.unlock(key)
    return done


def fork(locks: FileLocks) -> str:
    """Fork while another thread is inside. The child goes on by the same lines; the parent waits to be killed."""
    inside = threading.Event()

    def stay() -> None:
        with locks._mutex:
            inside.set()
            threading.Event().wait()

    threading.Thread(target=stay, daemon=True).start()
    inside.wait()
    if os.fork():
        signal.pause()
    return "child"


def write(url: str) -> str:
    """Whether somebody else's transaction keeps this process from writing."""
    connection = sqlite3.connect(parse(url).name, timeout=0)
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        return str(error)
    finally:
        connection.close()
    return "begun"


def answer(locks: FileLocks, url: str, verb: str, *words: str) -> object:
    if verb == "fork":
        return fork(locks)
    if verb == "write":
        return write(url)
    if verb == "count":
        key, path, times = words
        return count(locks, key, path, int(times))
    verbs: dict[str, Callable[..., object]] = {
        "lock": locks.try_lock,
        "unlock": locks.unlock,
        "open": locks.open,
        "close": locks.close,
    }
    try:
        return verbs[verb](*words)
    except Unsupported:
        return "refused"


def main(url: str, options: str) -> None:
    whole_file = WholeFile() if json.loads(options).get("whole_file") else None
    locks = FileLocks(parse(url), method=whole_file)
    say("ready")
    for line in iter(sys.stdin.readline, ""):
        verb, *words = line.split()
        say(verb, answer(locks, url, verb, *words))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
