"""Taking from a queue within a time limit, on every Python.

Workers that rest until one of them is rung for.

Wake, pure: when a queue is looked at. Instants are seconds of a monotonic clock; the caller reads it.

Which seat looks, and what the looks have seen, pure. Looks of several seats may overlap and end in any order.

In how many seconds the next row falls due, as far as a look ahead can tell.
"""

import heapq
import math
import sys
from collections.abc import Hashable
from datetime import datetime
from queue import Empty, SimpleQueue
from typing import TypeVar

import attrs

from sqlqueue.strategies.claim import Ahead, PassOver

T = TypeVar("T")

# Where the time of `SimpleQueue.get` is up between two of its lines, it waits for ever: in Python 3.10 with a limit of
# 0 s that took 30,000 to 60,000 tries, in 3.11 and 3.12 with one of 0.1 µs some thousands. It does so after it found
# the queue unlocked and empty, and a try without waiting leaves an empty queue locked. Where several take, another may
# unlock it in between; a thread is hardly ever off its core for as long as this just there.
SHORTEST = 0.02 if sys.version_info < (3, 11) else 0.0


def take(items: "SimpleQueue[T]", seconds: float) -> T:
    """The next item, waited for so many seconds at the most, 0 for what is there already; `queue.Empty` where there is
    none."""
    try:
        return items.get_nowait()
    except Empty:
        if seconds <= 0:
            raise
    return items.get(timeout=max(seconds, SHORTEST))


@attrs.define
class IdleWorkers:
    """Counts who rests, so that nobody is rung for in vain. `rests`, `rises` and `ring` are called under its owner's
    lock."""

    _rings: "SimpleQueue[None]" = attrs.field(factory=SimpleQueue, init=False)
    _resting: int = attrs.field(default=0, init=False)
    _rung: int = attrs.field(default=0, init=False)

    def rests(self) -> None:
        """A worker is about to wait."""
        self._resting += 1

    def rises(self) -> None:
        """A worker waits no longer."""
        self._resting -= 1
        self._rung = max(0, self._rung - 1)

    def wait(self, timeout: float) -> None:
        """Wait to be rung for, so many seconds at most."""
        try:
            take(self._rings, timeout)
        except Empty:
            pass  # the time is up

    def ring(self) -> None:
        """Wake one of those that rest, if any does."""
        if self._resting > self._rung:
            self._rung += 1
            self._rings.put(None)

    def ring_for(self, count: int) -> None:
        """Wake so many, resting or about to; safe in a signal handler."""
        for _ in range(count):
            self._rings.put(None)


#: Seconds before a due row that was not claimed (somebody else has it locked) is looked at again; doubles.
SOON = 0.1

#: Rows of ours that fall due within one grain (seconds) are looked for together, so that few instants are kept.
GRAIN = 0.01

#: Seconds between tries after trouble: the first, and the most where it may pass by itself, and where it may not.
FIRST_BACKOFF = 0.1
MOST_BACKOFF = 5.0
MOST_BACKOFF_PERMANENT = 60.0


@attrs.define
class PollTimer:
    """The rhythm of one queue's looks.

    `poll` is the interval of idle looks. Claims that come back full follow each other without pause; after a
    short one the next waits for the interval, for the earliest row known to fall due, or for a wake-up, whichever is
    first. A wake-up that comes while a claim is under way counts for the next wait.
    """

    poll: float
    _next: float = float("-inf")
    _not_before: float = float("-inf")
    _soon: float = SOON
    _backoff: float = 0.0
    _woken: bool = False
    _dues: list[float] = attrs.field(factory=list)
    _known: set[float] = attrs.field(factory=set)

    def wait(self, now: float) -> float | None:
        """Seconds until the next look, 0 for now; None: not before a wake-up."""
        following = self._next
        if self._dues and not self._backoff:
            following = min(following, self._dues[0])
        following = max(following, self._not_before)
        return None if following == float("inf") else max(0.0, following - now)

    def pause(self, now: float, seconds: float) -> None:
        """No look for so long, whatever wakes: a row that asked to wait is due at once, for nothing can hide it."""
        self._not_before = max(self._not_before, now + seconds)

    def held_back(self, now: float) -> bool:
        """Whether no look may come now, although there may be rows."""
        return self._not_before > now or (self._backoff > 0.0 and self._next > now)

    def wake(self, now: float) -> None:
        """Somebody wrote: look now, unless trouble says to wait."""
        self._woken = True
        if not self._backoff:
            self._next = now

    def begin(self, now: float) -> None:
        """A look begins; what wakes from here on asks for another one."""
        self._woken = False
        while self._dues and self._dues[0] <= now:
            self._known.discard(heapq.heappop(self._dues))

    def full(self, now: float) -> None:
        """The claim found all it asked for: there may be more."""
        self._next, self._soon = now, SOON

    def short(self, now: float, *, due_in: float | None = None, hidden: bool = True, certain: bool = False) -> None:
        """The claim found less than it asked for.

        `due_in`: seconds until the next hidden row falls due; a due row that stayed (0 or less) is looked at again
        soon, then less and less often. `hidden`: whether unfinished rows are left. `certain`: every write
        wakes us, so that with nothing hidden no look is needed.
        """
        pause = float("inf") if certain and not hidden else self.poll
        if due_in is not None and due_in > 0:
            pause, self._soon = min(pause, due_in), SOON
        elif due_in is not None:
            pause, self._soon = min(pause, self._soon), min(self._soon * 2, self.poll)
        self._next = now if self._woken else now + pause

    def due(self, now: float, due_in: float) -> None:
        """A row of ours falls due in so many seconds: look then at the latest, whatever the table tells."""
        if due_in <= 0:
            self.wake(now)
            return
        due = math.ceil((now + due_in) / GRAIN) * GRAIN
        if due not in self._known:
            self._known.add(due)
            heapq.heappush(self._dues, due)

    def trouble(self, now: float, *, spread: float, permanent: bool = False) -> float:
        """A look failed: the seconds until the next, growing while trouble lasts; `spread` in 0..1 is chance."""
        most = MOST_BACKOFF_PERMANENT if permanent else MOST_BACKOFF
        self._backoff = min(most, max(FIRST_BACKOFF, self._backoff * 2))
        pause = self._backoff * (0.5 + spread / 2)
        self._next = now + pause
        return pause

    def recovered(self) -> None:
        """The database answered again, to a look or to an extension: look now."""
        if self._backoff:
            self._backoff, self._next = 0.0, float("-inf")


@attrs.frozen(eq=False)
class BegunLook:
    """A look that has begun: the wake-ups that it sees, and the rows that it leaves alone."""

    wakes: int
    pass_over: PassOver


@attrs.define
class Looks:
    """The looks of one queue's seats. `looker`: the idle seat whose turn it is to look."""

    looker: Hashable | None = None
    _wakes: int = 0
    _seen: int = -1
    _last: BegunLook | None = None
    _doubted: BegunLook | None = None
    _passed_over: bool = False
    _busy: set[Hashable] = attrs.field(factory=set)

    def wake(self) -> None:
        """What looks from here on is to be seen."""
        self._wakes += 1

    def begin(self, pass_over: PassOver) -> BegunLook:
        self._last = BegunLook(self._wakes, pass_over)
        return self._last

    def found(self, seat: Hashable) -> None:
        """The seat has a row: it is busy until the look behind the row's settlement is over."""
        self._passed_over = False
        self._busy.add(seat)
        self._passes_on(seat)

    def found_nothing(self, seat: Hashable, look: BegunLook) -> bool:
        """Whether that tells of the queue: a look that began later knows better."""
        self._busy.discard(seat)
        return look is self._last

    def saw_all(self, look: BegunLook, *, passed_over: bool) -> None:
        """Nothing is due that was there when the look began, or what is due was `passed_over`: that counts where two
        looks say so, for a look may hide a row from those beside it while it tries it, and from itself."""
        sure = look is not self._doubted and (self._passed_over or not passed_over)
        self._passed_over = passed_over
        if sure:
            self._seen = look.wakes

    def doubt(self) -> None:
        """An earlier look passed over what the last one may not have seen."""
        self._doubted = self._last
        self.forget()

    def forget(self) -> None:
        """There may be more than any look has seen."""
        self._seen = -1

    def rests(self, seat: Hashable) -> None:
        self._busy.discard(seat)
        self._passes_on(seat)

    @property
    def at_rest(self) -> bool:
        """Whether nobody looks or will, and the last look, begun after the last wake-up, found nothing more."""
        return not self._busy and self.looker is None and self._seen == self._wakes

    def _passes_on(self, seat: Hashable) -> None:
        if self.looker is seat:
            self.looker = None


#: Seconds until the next look, at least, where the queue's clock stands still, as a test's does: what lies ahead of it
#: is not coming nearer.
STANDING = 0.1


@attrs.define
class NextDue:
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
