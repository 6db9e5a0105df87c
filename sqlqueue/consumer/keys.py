"""Order by key where each worker claims for itself: a claim passes over the keys that are in work or wait."""

from collections.abc import Hashable, Sequence
from datetime import datetime
from typing import Any

import attrs

from sqlqueue.consumer.handlers import Work
from sqlqueue.consumer.lanes import Lanes
from sqlqueue.strategies.base import PassOver


@attrs.define
class Keys:
    """The keys of one queue's rows in this consumer. Its owner sees to it that one thread at a time is inside."""

    _lanes: Lanes[Work] = attrs.field(factory=Lanes)

    def pass_over(self) -> PassOver:
        """The keys that have a row in work, and those that wait for a failed row, but for that row."""
        lanes = self._lanes
        waiting = {key: blocked.id for key, blocked in lanes.failed.items() if not lanes.busy(key)}
        return PassOver([*lanes.busy_keys, *waiting], list(waiting.values()))

    def claimed(self, work: Work) -> None:
        if not self._lanes.enter(work.key, work):
            raise AssertionError(f"a row of key {work.key!r} was claimed while another is in work")

    def settled(self, work: Work) -> None:
        """A row is settled for good: the next of its key may be claimed."""
        self._lanes.leave(work.key)

    def retried(self, work: Work, until: datetime | None) -> None:
        """A row will be tried again from `until`: the later rows of its key wait for it."""
        self._lanes.hold(work.key, work.delivery.claim.id, until)

    def dropped(self, work: Work) -> None:
        """A row is out of our hands and not settled."""
        self._lanes.put_off(work.key)

    def overdue(self, now: datetime) -> Sequence[tuple[Hashable, Any]]:
        """The keys, with their failed rows, that wait for a row which was due by `now` and has not come to us."""
        return self._lanes.overdue(now)

    def unblock(self, key: Hashable) -> None:
        """The failed row that the key waited for was settled elsewhere."""
        self._lanes.unblock(key)
