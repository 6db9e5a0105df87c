"""Wake, pure: when a queue is looked at. Instants are seconds of a monotonic clock; the caller reads it."""

import heapq
import math

import attrs

#: Seconds before a due row that was not claimed (somebody else has it locked) is looked at again; doubles.
SOON = 0.1

#: Rows of ours that fall due within one grain (seconds) are looked for together, so that few instants are kept.
GRAIN = 0.01

#: Seconds between tries after trouble: the first, and the most where it may pass by itself, and where it may not.
FIRST_BACKOFF = 0.1
MOST_BACKOFF = 5.0
MOST_BACKOFF_PERMANENT = 60.0


@attrs.define
class Pace:
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
