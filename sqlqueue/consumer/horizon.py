"""In how many seconds the next row falls due, as far as a look ahead can tell."""

from datetime import datetime

import attrs

from sqlqueue.strategies.base import Ahead

#: Seconds until the next look, at least, where the queue's clock stands still, as a test's does: what lies ahead of it
#: is not coming nearer.
STANDING = 0.1


@attrs.define
class Horizon:
    """Reads what lies ahead against the clock that rows are due by: the database's, where the look read it."""

    _looked_at: datetime | None = None

    def due_in(self, ahead: Ahead, now: datetime) -> float | None:
        """Seconds, 0 where a row is due already; None where none is known."""
        now = ahead.now or now
        stands, self._looked_at = now == self._looked_at, now
        if ahead.passed_over:
            return 0.0
        if ahead.due is None:
            return None
        due_in = (ahead.due - now).total_seconds()
        return max(due_in, STANDING) if stands else due_in
