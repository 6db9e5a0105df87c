"""The raw loop that holds each row by a lock on a byte of a side file, on SQLite: a statement for each of its steps."""

import threading
from contextlib import AbstractContextManager
from io import FileIO

from benchmarks.raw import Crew, handle
from benchmarks.raw_sqlite import connected
from sqlqueue_sqlite.locks import ByteRanges

CANDIDATES = "SELECT id, payload FROM bench_jobs ORDER BY id LIMIT ?"
CHECK = "SELECT 1 FROM bench_jobs WHERE id = ?"
DELETE = "DELETE FROM bench_jobs WHERE id = ?"


class SQLiteLocker:
    """One of so many that work at once: two candidates for each of them. The side file is opened by each, for the
    kernel's locks then keep threads apart as well. `gate` is for writers, who else would sleep and try again."""

    def __init__(self, path: str, workers: int, gate: AbstractContextManager[object]) -> None:
        self._connection = connected(path)
        self._side = FileIO(f"{path}-raw", "a")
        self._locks = ByteRanges()
        self._candidates = 2 * workers
        self._gate = gate

    def drain(self) -> int:
        """Work until there is nothing that the others do not hold."""
        execute, side, done = self._connection.execute, self._side.fileno(), 0
        while candidates := execute(CANDIDATES, (self._candidates,)).fetchall():
            locked = next((row for row in candidates if self._locks.take(side, row[0])), None)
            if locked is None:
                break
            done += self._work(*locked)
        return done

    def _work(self, id: int, payload: bytes) -> bool:
        """Handle the row whose lock was taken, if it is still there, and let go."""
        here = self._connection.execute(CHECK, (id,)).fetchone() is not None
        if here:
            handle(payload)
            with self._gate:  # a transaction of its own, synced to the disk
                self._connection.execute(DELETE, (id,))
        self._locks.give(self._side.fileno(), id)
        return here

    def close(self) -> None:
        self._connection.close()
        self._side.close()


def crew(path: str, workers: int) -> Crew:
    gate = threading.Lock()
    return Crew([SQLiteLocker(path, workers, gate) for _ in range(workers)])
