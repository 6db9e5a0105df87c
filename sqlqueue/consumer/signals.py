"""SIGTERM and SIGINT while a consumer runs in the main thread; anywhere else no signal is touched."""

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

log = logging.getLogger("sqlqueue")

HANDLED = (signal.SIGTERM, signal.SIGINT)


class Signals:
    """What was received so far. The callbacks run inside a signal handler: they may only put on a `SimpleQueue`."""

    def __init__(self) -> None:
        self.received: list[int] = []

    def hurried(self) -> bool:
        """Whether a second signal came."""
        return len(self.received) > 1

    @contextmanager
    def installed(self, *, on_first: Callable[[], None], on_second: Callable[[], None]) -> Iterator[None]:
        """Handle the signals inside the block and put the handlers that were there before back after it."""
        self.received = []
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        process = os.getpid()

        def receive(number: int, _: Any) -> None:
            if os.getpid() != process:  # a child that a handler forked does what it would do without us
                signal.signal(number, before[number])
                os.kill(os.getpid(), number)
                return
            self.received.append(number)
            (on_first if len(self.received) == 1 else on_second)()

        # None is a handler that is not Python's own, which cannot be put back.
        before: dict[int, Any] = {number: signal.getsignal(number) or signal.SIG_DFL for number in HANDLED}
        for number in HANDLED:
            signal.signal(number, receive)
        try:
            yield
        finally:
            for number in HANDLED:
                signal.signal(number, before[number])
            self.received = []

    def leave(self, running: int) -> None:
        """End the process although handlers still run: Python would wait for their threads for ever."""
        code = 0 if len(self.received) == 1 else 128 + self.received[1]
        log.warning("%d handlers are still at work; their rows were given back, leaving with code %d", running, code)
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
