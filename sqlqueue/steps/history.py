"""What ran: told to whoever keeps a history."""

from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class StepRun:
    """One try of one step, once it is settled.

    `attempt` is 1 in the first try, `seconds` how long it ran (None: its worker was lost). `outcome` is one of
    `advanced`, `acknowledged` (the task is done), `retried`, `parked`, `dropped`, `released` (the step asked
    its process to end); `error` is the text that a parked task shows.
    """

    id: Any
    task: str
    step: str
    attempt: int
    seconds: float | None
    outcome: str
    error: str | None = None
