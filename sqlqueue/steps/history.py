"""What ran: told to whoever keeps a history."""

from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class StepRun:
    """One try of one step, once it is settled; or that a task was parked untried, since its step does not decode.

    `task`, `step`: its names, None where those cannot be read. `attempt` is 1 in the first try; of a task that was
    parked untried it counts the tries before. `seconds`: how long it ran, None where it did not, or its worker was
    lost. `outcome` is one of `advanced`, `acknowledged` (the task is done), `retried`, `parked`, `dropped`, `released`
    (the step asked its process to end). `error`: why it was parked, what failed where it is tried again, the reason for
    which it was dropped.
    """

    id: Any
    task: str | None
    step: str | None
    attempt: int
    seconds: float | None
    outcome: str
    error: str | None = None
