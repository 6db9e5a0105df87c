"""A step: a small attrs class whose fields are all the state that it needs, and what comes after it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Any, ClassVar

import attrs

from sqlqueue.clock import UTC, Duration, later
from sqlqueue.delivery import Delivery
from sqlqueue.errors import TransactionError
from sqlqueue.retry import RetryPolicy


@attrs.frozen
class Next:
    """What a step returns. Made by `now`, `delay` and `done`.

    `step`: the task's next step; None, with `ends`, where it is done. `after`: seconds, or a timedelta, until that is
    due.
    """

    step: "Step | None"
    after: Duration | None = None
    ends: bool = attrs.field(default=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.step is None and not self.ends:  # such as what a look-up found nothing for: it must not end a task
            raise TypeError("the next step is None; give a step, or return Next.done() where the task is done")
        if self.after is not None:
            later(datetime.now(UTC), self.after, "Next.delay(…, after)")

    @classmethod
    def now(cls, step: "Step") -> "Next":
        """The task goes on with `step` at once."""
        return cls(step)

    @classmethod
    def delay(cls, step: "Step", after: Duration) -> "Next":
        """The task goes on with `step` after so many seconds, or a timedelta; this step ends now, and no worker waits.

        A negative or overflowing delay is a `ValueError`.
        """
        if after is None:
            raise TypeError("Next.delay(step, None) names no delay; give seconds or a timedelta, or Next.now(step)")
        return cls(step, after)

    @classmethod
    def done(cls) -> "Next":
        """The task is done: its row is deleted."""
        return cls(None, ends=True)


@attrs.define(eq=False)
class StepContext:
    """What a step may know of its run. `task` and `step` are their names."""

    task: str
    step: str
    _delivery: Delivery = attrs.field(repr=False, alias="delivery")
    _id_of: Callable[[Delivery], Any] = attrs.field(repr=False, alias="id_of")

    @property
    def id(self) -> Any:
        """The task's id, a UUID."""
        return self._id_of(self._delivery)

    @property
    def attempt(self) -> int:
        """1 in the step's first try."""
        return self._delivery.attempt or 1

    @property
    def lost(self) -> bool:
        """Whether the task is known to have been lost, such as by the end of its lease: what this step still does will
        not count."""
        return self._delivery.lost

    @property
    def connection(self) -> Any:
        """The driver's own connection (psycopg or sqlite3), inside the transaction that moves the task on; for a
        `transactional` step. Do not commit, roll back or close it.

        Raises `TransactionError` in any other step, and once the step has returned.
        """
        if self._delivery.opened:
            return self._delivery.connection
        raise TransactionError(
            f"step {self.step} of task {self.task} is in no transaction: it has returned, or is not transactional; "
            "write transactional: ClassVar[bool] = True in its class"
        )


class Step(ABC):
    """The base of every step: decorate the class with `@attrs.frozen`, and write `run`.

    `retry_limit`: how often a failed step is tried again (0). `retry_delay`: what lies between two tries: seconds, a
    timedelta, or a policy of `sqlqueue.retry` (1 s). `transactional`: what `run` writes on `context.connection` commits
    with the task's move to its next step (no).
    """

    __slots__ = ()

    retry_limit: ClassVar[int] = 0
    retry_delay: ClassVar[Duration | RetryPolicy] = 1.0
    transactional: ClassVar[bool] = False

    @abstractmethod
    def run(self, context: StepContext) -> Next:
        """Do the step's work and say what comes next. An exception is a failure of the step."""


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
