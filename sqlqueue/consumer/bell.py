"""Workers that rest until one of them is rung for."""

from queue import Empty, SimpleQueue

import attrs

from sqlqueue.timed import take


@attrs.define
class Bell:
    """Counts who rests, so that nobody is rung for in vain. `rests`, `rises` and `ring` are called under its owner's
    lock."""

    _rings: "SimpleQueue[None]" = attrs.field(factory=SimpleQueue, init=False)
    _resting: int = attrs.field(default=0, init=False)
    _rung: int = attrs.field(default=0, init=False)

    def rests(self) -> None:
        """A worker is about to wait."""
        self._resting += 1

    def rises(self) -> None:
        """A worker waits no longer."""
        self._resting -= 1
        self._rung = max(0, self._rung - 1)

    def wait(self, timeout: float) -> None:
        """Wait to be rung for, so many seconds at most."""
        try:
            take(self._rings, timeout)
        except Empty:
            pass  # the time is up

    def ring(self) -> None:
        """Wake one of those that rest, if any does."""
        if self._resting > self._rung:
            self._rung += 1
            self._rings.put(None)

    def ring_for(self, count: int) -> None:
        """Wake so many, resting or about to; safe in a signal handler."""
        for _ in range(count):
            self._rings.put(None)
