"""Dispatch, where a handler takes batches: the rows that may run are cut into them, one for each free worker."""

from collections.abc import Iterable, Sequence
from typing import Any

import attrs

from sqlqueue.consumer.handlers import Finished, Work
from sqlqueue.consumer.hands import WAITING_BY_KEY, Hands
from sqlqueue.handler import Handler


@attrs.frozen(eq=False)
class FinishedBatch:
    """What became of a batch that had `size` rows when it was handed out; those that were lost before its handler
    began are left out."""

    size: int
    finished: Sequence[Finished]


class BatchHands(Hands):
    """The claimed rows of one queue whose handler takes up to `batch` of them at once.

    Order by key: a batch holds one row of each key, for the next may run once that one is settled. A batch with fewer
    rows takes a worker all the same, so that no more is claimed than workers can begin. `prefetch` is rounded up to
    whole batches.
    """

    def __init__(self, *, workers: int, prefetch: int, by_key: bool, batch: int) -> None:
        super().__init__(workers=workers * batch, prefetch=-(-prefetch // batch) * batch, by_key=by_key)
        self._most_waiting = workers * max(WAITING_BY_KEY, batch)
        self._batch = batch
        self._begun: list[Work] = []
        self._places_empty = 0

    @property
    def room(self) -> int:
        return super().room - self._places_empty

    def _start(self, work: Work) -> None:
        work.leads = True
        self._begun.append(work)

    def hand_out(self) -> None:
        """Hand what may run to the workers, in batches."""
        if not self._begun:
            return
        begun, self._begun = self._begun, []
        for first in range(0, len(begun), self._batch):
            works = begun[first : first + self._batch]
            self._places_empty += self._batch - len(works)
            self.ready.put(works)

    def came_back(self, finished: Sequence[Any]) -> Iterable[Finished]:
        for batch in finished:
            self._places_empty -= self._batch - batch.size
        return [one for batch in finished for one in batch.finished]

    def _rows(self, ready: Any) -> Sequence[Work]:
        self._places_empty -= self._batch - len(ready)
        works: Sequence[Work] = ready
        return works


def hands_for(handler: Handler, *, by_key: bool) -> Hands:
    """The hands that a handler's declaration asks for."""
    workers, prefetch = handler.workers, handler.prefetch
    if handler.batch is None:
        return Hands(workers=workers, prefetch=prefetch, by_key=by_key)
    return BatchHands(workers=workers, prefetch=prefetch, by_key=by_key, batch=handler.batch)
