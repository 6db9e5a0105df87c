"""Where a claim looks for rows: along the claim order, from its start or from a bookmark."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from threading import Lock
from typing import Any, Protocol

import attrs

from sqlqueue.column import Role
from sqlqueue.dialect import Row
from sqlqueue.sql import Call, Statement
from sqlqueue.strategies.ahead import look_ahead
from sqlqueue.strategies.base import Claim
from sqlqueue.strategies.bookmark import Bookmark, Position
from sqlqueue.strategies.reading import Reading
from sqlqueue.strategies.waiting import onward
from sqlqueue.words import Words

#: Makes a strategy's claim: of the statement's name and a SELECT of what it may take, in claim order and locked where
#: the database has row locks, at least `:limit` of them where there are.
Take = Callable[[str, str], Statement]

#: Makes that SELECT, of rows that meet all of these conditions.
Rows = Callable[[Sequence[str]], str]


@attrs.frozen
class Look:
    """One look for `limit` rows, the last of the `asked` ones: the calls that claim, the last of which returns the
    rows.

    `position`: where it began, None at the start.
    """

    calls: Sequence[Call]
    values: Mapping[str, Any]
    limit: int
    asked: int
    position: Any = None


class Scan(Protocol):
    """Finds the rows of one queue. Safe to use from many threads."""

    @property
    def claim(self) -> Statement:
        """The statement whose order an index should serve."""
        ...

    @property
    def ahead(self) -> Statement:
        """What a queue with nothing to claim waits for, see `look_ahead`."""
        ...

    def statements(self) -> Sequence[Statement]: ...

    def look(self, values: Mapping[str, Any], limit: int, now: datetime) -> Look:
        """Begin to look for up to `limit` rows; `values` is what the strategy's claim binds."""
        ...

    def further(self, look: Look, results: Sequence[Sequence[Row]]) -> Look | None:
        """Where to look on, after a look whose calls returned `results`; None where that was all."""
        ...

    def claimed(self, rows: Sequence[Row], last: Look, now: datetime) -> Sequence[Row]:
        """Note what all looks of a claim found; the rows in claim order."""
        ...

    def again(self, claim: Claim) -> None:
        """The row will be due again at once: the rows behind it come first."""
        ...


class InOrder:
    """The claim order over the whole queue, with a bookmark where walking from the start would cost more.

    `free`: the strategy's conditions, in a claim, for rows in nobody's hands; `free_now`: the same in a statement by
    itself. `own_shown`: whether rows in this consumer's hands look free. `by_key`: whether claims pass keys over.
    """

    def __init__(
        self,
        words: Words,
        reading: Reading,
        *,
        name: str,
        rows: Rows,
        take: Take,
        free: Sequence[str],
        free_now: Sequence[str] | None = None,
        own_shown: bool = False,
        by_key: bool = False,
    ) -> None:
        spec, dead_rows = words.spec, words.dialect.capabilities.dead_rows
        self._reading = reading
        self.claim = take(name, rows(free))
        self._onward: Statement | None = None
        # By key there is no bookmark: rows that were passed over before it go first once their key is free.
        if not by_key and not spec.has(Role.PRIORITY) and (dead_rows or not spec.has(Role.RETRY_AFTER)):
            self._onward = take(f"{name}, onward", rows([*free, onward(words)]))
        self.ahead = look_ahead(words, free=free if free_now is None else free_now, own_shown=own_shown)
        self._by_id = not spec.has(Role.RETRY_AFTER)
        self._bookmark = Bookmark(backlog=dead_rows)
        self._lock = Lock()

    def statements(self) -> Sequence[Statement]:
        return [self.claim, *self.onward, self.ahead]

    @property
    def onward(self) -> Sequence[Statement]:
        """The claim that begins at the bookmark, where there is one."""
        return [self._onward] if self._onward is not None else []

    def look(self, values: Mapping[str, Any], limit: int, now: datetime) -> Look:
        position = None
        if self._onward is not None:
            with self._lock:  # decided: where this look begins
                position = self._bookmark.position(now)
        return self._look(values, limit, limit, position)

    def _look(self, values: Mapping[str, Any], limit: int, asked: int, position: Position | None) -> Look:
        bound = {**values, "limit": limit}
        if position is None or self._onward is None:
            return Look((Call(self.claim, bound),), values, limit, asked)
        bound["from_retry_after"], bound["from_id"] = position
        return Look((Call(self._onward, bound),), values, limit, asked, position)

    def further(self, look: Look, results: Sequence[Sequence[Row]]) -> Look | None:
        left = look.limit - len(results[-1])
        if look.position is None or not left:
            return None
        with self._lock:  # decided: the end of the queue; what is left stands before the bookmark
            self._bookmark.at_end()
        return self._look(look.values, left, look.asked, None)

    def claimed(self, rows: Sequence[Row], last: Look, now: datetime) -> Sequence[Row]:
        rows = self._reading.in_order(rows)
        if self._onward is not None:
            first = self._reading.position(rows[0]) if rows else None
            with self._lock:  # decided: where the next look may begin
                self._bookmark.claimed(first, full=len(rows) >= last.asked, swept=last.position is None, now=now)
        return rows

    def again(self, claim: Claim) -> None:
        if self._by_id:
            with self._lock:  # decided: the rows behind it come first
                self._bookmark.again((None, claim.id))
