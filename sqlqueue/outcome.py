"""What a handler answers: it returns or raises one of these; None acknowledges, any other exception is a failure."""

from datetime import datetime

import attrs

from sqlqueue.clock import UTC, Duration, later


@attrs.frozen
class Retry(Exception):  # noqa: N818 - an outcome that may be raised, not an error
    """Deliver the row again: at once, or hidden for `after` (seconds or timedelta).

    A negative or overflowing delay is a `ValueError`.
    """

    after: Duration | None = None

    def __attrs_post_init__(self) -> None:
        if self.after is not None:
            later(datetime.now(UTC), self.after, "Retry(after)")


@attrs.frozen
class Drop(Exception):  # noqa: N818
    """Finish the row as an acknowledgement does, and log that it was dropped."""

    reason: str | None = None


@attrs.frozen
class DeadLetter(Exception):  # noqa: N818
    """Move the row to its dead letter, or park it where it has none."""

    reason: str = "dead-lettered by its handler"


Outcome = Retry | Drop | DeadLetter | None
