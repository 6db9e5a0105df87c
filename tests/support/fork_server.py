"""Starts programs of `tests` as forks of one process that has imported what they need: 10 ms each instead of 500.

`python -m tests.support.fork_server SOCKET` is that process: it answers one request after the other. Each program leads
a process group of its own; nothing of the library has run before it is forked.
"""

import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn

import attrs

ROOT = Path(__file__).parents[2]
LIMIT = 20.0  # seconds

#: What the programs import, where it is installed.
PRELOADED = (
    "sqlqueue_sqlite",
    "sqlqueue_postgres",
    "sqlqueue.steps",
    "sqlqueue.relay",
    "sqlqueue.testing.contract.tables",
    "tests.consumer.tables",
    "tests.crash.outbox",
    "tests.crash.shop",
    "tests.crash.walks",
)


@attrs.define
class Process:
    """A program that runs, with as much of `subprocess.Popen` as the tests use."""

    pid: int
    stdin: TextIOWrapper
    stdout: TextIOWrapper
    _status: int  # a pipe: its wait status comes there when it has ended
    returncode: int | None = None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def poll(self) -> int | None:
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
            told = os.read(self._status, 4)
            os.close(self._status)
            assert told, "the fork server has ended"
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(told, "big"))
        return self.returncode


class ForkServer:
    """The process that forks, as the tests ask it to. It ends with this one, or by `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
            )

    def start(self, module: str, arguments: list[str]) -> Process:
        """Run `module` as `__main__`, with this process's environment and standard error."""
        stdin, to_stdin = os.pipe()
        from_stdout, stdout = os.pipe()
        from_status, status = os.pipe()
        request = json.dumps({"module": module, "arguments": arguments, "environment": dict(os.environ)}).encode()
        with self._lock:
            socket.send_fds(self._ours, [len(request).to_bytes(4, "big")], [stdin, stdout, 2, status])
            self._ours.sendall(request)
            pid = int.from_bytes(self._ours.recv(4, socket.MSG_WAITALL), "big")
        for theirs in (stdin, stdout, status):
            os.close(theirs)
        assert pid, "the fork server has ended"
        return Process(pid, TextIOWrapper(open(to_stdin, "wb")), TextIOWrapper(open(from_stdout, "rb")), from_status)

    def close(self) -> None:
        self._ours.close()
        self._process.wait(LIMIT)


def _serve(requests: socket.socket) -> None:
    for module in PRELOADED:
        try:
            importlib.import_module(module)
        except ImportError:
            pass  # a driver that is not installed
    gc.collect()
    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    running: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _reap(running)
        if requests.fileno() in ready:
            head, files, _, _ = socket.recv_fds(requests, 4, 4)
            if not head:
                return
            request = json.loads(requests.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
            pid = _fork(request, files, requests, (woken, wake, *running.values()))
            running[pid] = files[3]
            requests.sendall(pid.to_bytes(4, "big"))


def _fork(request: dict[str, Any], files: list[int], requests: socket.socket, ours: Sequence[int]) -> int:
    """Start the program; its process's id. `requests` and `ours` are not the program's."""
    pid = os.fork()
    if not pid:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for left in (requests.detach(), *ours, files[3]):
            os.close(left)
        _become(request, files[:3])
    try:
        os.setpgid(pid, pid)  # here too, for whoever asked may kill the group at once
    except OSError:
        pass  # the child did it, and has gone on
    for file in files[:3]:
        os.close(file)
    return pid


def _reap(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        pipe = running.pop(pid)
        try:
            os.write(pipe, status.to_bytes(4, "big"))
        except BrokenPipeError:
            pass  # nobody asks
        os.close(pipe)


def _become(request: dict[str, Any], files: list[int]) -> NoReturn:
    """Be the program, in the forked child."""
    os.setpgid(0, 0)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    spec = importlib.util.find_spec(request["module"])
    assert spec is not None
    main = ModuleType("__main__")
    main.__dict__.update(__spec__=spec, __file__=spec.origin, __package__=spec.parent)
    sys.modules["__main__"] = main
    sys.argv = [str(spec.origin), *request["arguments"]]
    code: CodeType = spec.loader.get_code(request["module"])  # type: ignore[union-attr]
    exec(code, main.__dict__)  # noqa: S102 - as `python -m` does
    sys.exit(0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
