"""Keys that wait for a failed row which does not come back to us: they go on once it was settled elsewhere."""

from collections.abc import Callable, Hashable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import attrs

from sqlqueue.consumer.pace import Pace

#: Seconds between two questions whether the failed row that a key waits for was settled elsewhere.
FREE_KEYS = 1.0


class KeyOrder(Protocol):
    """Who keeps the order of keys."""

    def overdue(self, now: datetime) -> Sequence[tuple[Hashable, Any]]: ...

    def unblock(self, key: Hashable) -> None: ...


@attrs.define
class Freeing:
    """Asks for the failed rows of one queue's keys, now and then."""

    order: KeyOrder
    pace: Pace
    _asked: float = float("-inf")

    def free(self, seconds: float, now: datetime, unfinished: Callable[[Any], bool]) -> None:
        """`seconds` is the monotonic clock's, `now` the queue's; `unfinished` asks the database for a row's id."""
        if seconds < self._asked + FREE_KEYS:
            return
        overdue = self.order.overdue(now - timedelta(seconds=FREE_KEYS))
        self._asked = seconds if overdue else self._asked
        for key, id in overdue:
            if unfinished(id):
                self.pace.due(seconds, FREE_KEYS)
            else:
                self.order.unblock(key)
