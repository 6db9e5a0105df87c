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

        def receive(number: int, _: Any) -> None:
            self.received.append(number)
            (on_first if len(self.received) == 1 else on_second)()

        before = {number: signal.signal(number, receive) for number in HANDLED}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def leave(self, running: int) -> None:
        """End the process although handlers still run: Python would wait for their threads for ever."""
        code = 0 if len(self.received) == 1 else 128 + self.received[1]
        log.warning("%d handlers are still at work; their rows were given back, leaving with code %d", running, code)
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code)
