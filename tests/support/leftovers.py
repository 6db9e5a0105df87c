"""What a test left behind: threads, and open files of its database."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

GRACE = 2.0  # seconds for a thread that was told to stop
OURS = ("sqlqueue", "pool-")  # our threads and psycopg_pool's, daemons too


def _matters(thread: threading.Thread) -> bool:
    return not thread.daemon or thread.name.startswith(OURS)


@contextmanager
def no_threads_left() -> Iterator[None]:
    """Every thread started inside has ended, or ends within `GRACE` seconds."""
    before = set(threading.enumerate())
    yield
    started = [thread for thread in threading.enumerate() if thread not in before and _matters(thread)]
    for thread in started:
        thread.join(GRACE)
    left = [thread.name for thread in started if thread.is_alive()]
    if left:
        raise AssertionError(f"threads left running: {', '.join(left)}")


def open_files(path: Path) -> list[str]:
    """The names by which this process holds `path` or a file beside it (`-wal`, `-shm`) open; Linux alone tells.

    It reads links only: opening the file itself would drop SQLite's locks on it.
    """
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        return []
    names = []
    for descriptor in os.listdir(descriptors):
        try:
            names.append(os.readlink(descriptors / descriptor))
        except FileNotFoundError:
            pass  # closed while we look
    return sorted(name for name in names if name.startswith(str(path)))
