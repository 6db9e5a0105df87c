"""Child processes that a test talks with: lines out, lines in, every wait with a limit."""

import atexit
import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

from tests.support.fork_server import ROOT, ForkServer, Process

__all__ = ["LIMIT", "ROOT", "Child", "child"]

LIMIT = 20.0  # seconds


@cache
def _fork_server() -> ForkServer:
    made = ForkServer()
    atexit.register(made.close)
    return made


class Child:
    """A running program of `tests`, by its lines."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._queue: SimpleQueue[str | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self._queue.put(line.strip())
        self._queue.put(None)

    def wait_for(self, start: str, count: int = 1) -> list[str]:
        """The first `count` lines from here on that begin with `start`."""
        found: list[str] = []
        end = monotonic() + LIMIT
        while len(found) < count:
            try:
                line = self._queue.get(timeout=max(0.0, end - monotonic()))
            except Empty:
                raise AssertionError(f"no {start!r} within {LIMIT} s, only {self.lines}") from None
            if line is None:
                raise AssertionError(f"it ended without {start!r}: {self.lines}")
            self.lines.append(line)
            if line.startswith(start):
                found.append(line)
        return found

    def tell(self, line: str) -> None:
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        """SIGTERM to a consumer, once it has looked for rows: it may hear no signal before. It ends with code 0."""
        if not self.said("looked"):
            self.wait_for("looked")
        self.signal(signal.SIGTERM)
        assert self.exit_code() == 0

    def exit_code(self, limit: float = LIMIT) -> int:
        """Wait for its end; what it said until then is in `lines`."""
        code = self.process.wait(limit)
        self._reader.join(LIMIT)
        while (line := self._queue.get(timeout=LIMIT)) is not None:
            self.lines.append(line)
        self._queue.put(None)
        return code

    def said(self, start: str) -> list[str]:
        return [line for line in self.lines if line.startswith(start)]


@contextmanager
def child(module: str, url: str, **options: Any) -> Iterator[Child]:
    """Run `module` with a URL and options as JSON; it is killed when the test leaves, if it still runs."""
    process = _fork_server().start(module, [url, json.dumps(options)])
    made = Child(process)
    try:
        yield made
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # and what it forked
        except ProcessLookupError:
            pass
        process.wait()
        made._reader.join(LIMIT)
        for stream in (process.stdin, process.stdout):
            stream.close()
