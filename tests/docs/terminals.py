"""The terminals of a page's reader: one in which commands are typed, one in which a consumer runs."""

import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import attrs

from tests.docs.pages import ROOT

LIMIT = 30.0  # seconds for any of the steps

# What differs from run to run.
_VARIES = {
    re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"): "<id>",
    re.compile(r"^\d\d:\d\d:\d\d ", re.MULTILINE): "<time> ",
}


def settled(text: str) -> str:
    """What was printed, without what differs from run to run."""
    for pattern, sign in _VARIES.items():
        text = pattern.sub(sign, text)
    return text


@attrs.frozen
class Terminal:
    """Runs commands as a page shows them, in `directory` as if that were a checkout.

    `options` are put behind the program's name, `slow` and `quick` stand for a command as it is shown and as it is run
    here.
    """

    directory: Path
    program: str
    options: tuple[str, ...] = ()
    slow: str = ""
    quick: str = ""

    def typed(self, commands: str) -> str:
        """The commands, as this machine runs them."""
        shown = f"python {self.program}"
        meant = shlex.join([sys.executable, str(ROOT / self.program), *self.options])
        text = commands.replace(shown, meant)
        return re.sub(rf" {self.slow}$", f" {self.quick}", text, flags=re.MULTILINE) if self.slow else text

    def run(self, commands: str) -> str:
        """What they print; each must succeed."""
        done = subprocess.run(
            ["sh", "-e", "-c", self.typed(commands)], cwd=self.directory, capture_output=True, text=True, timeout=LIMIT
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    @contextmanager
    def running(self, command: str) -> Iterator["Running"]:
        """A command that runs meanwhile; it is killed where it does not end by itself."""
        process = subprocess.Popen(
            shlex.split(self.typed(command)),
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        running = Running(process)
        try:
            yield running
        finally:
            process.kill()
            running.end()


class Running:
    """A program at work, and what it prints."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.seen: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))

    def wait_for(self, line: str) -> None:
        """Until it prints that line, from where the last call ended; others may come before it."""
        deadline = monotonic() + LIMIT
        while True:
            try:
                said = self._lines.get(timeout=max(0.0, deadline - monotonic()))
            except queue.Empty:
                raise AssertionError(f"no line {line!r} within {LIMIT:g} s; all lines: {self.seen}") from None
            self.seen.append(said)
            if settled(said) == settled(line):
                return

    def interrupt(self) -> None:
        """Ctrl-C"""
        self._process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Its exit code, once it has ended."""
        code = self._process.wait(LIMIT)
        self._reader.join(LIMIT)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code
