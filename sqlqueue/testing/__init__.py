"""For tests of programs that use sqlqueue, and of dialects: a manual clock, a recorder, a drain, the contract."""

from sqlqueue.testing.clock import ManualClock
from sqlqueue.testing.drain import drain
from sqlqueue.testing.recorder import Recorder

__all__ = ["ManualClock", "Recorder", "drain"]
