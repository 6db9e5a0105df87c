"""Waiting: when a queue is asked for rows (the poll timer), who asks, and how other threads wake those who wait.

`take`, `Inbox` and `IdleWorkers` wait for other threads; the rest is pure. Instants are seconds of a monotonic clock;
the caller reads it.
"""

import heapq
import math
import sys
from collections.abc import Hashable
from datetime import datetime
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Generic, TypeVar

import attrs

from sqlqueue.strategies.claim import PassOver, Upcoming

T = TypeVar("T")

# Where the time of `SimpleQueue.get` is up between two of its lines, it waits for ever: in Python 3.10 with a limit of
# 0 s that took 30,000 to 60,000 tries, in 3.11 and 3.12 with one of 0.1 µs some thousands. It does so after it found
# the queue unlocked and empty, and a try without waiting leaves an empty queue locked. Where several take, another may
# unlock it in between; a thread is hardly ever off its core for as long as this just there.
SHORTEST = 0.02 if sys.version_info < (3, 11) else 0.0

#: Seconds after which a wait returns in any case; the platform's locks take no endless numbers.
LONGEST = 3600.0


def take(items: "SimpleQueue[T]", seconds: float) -> T:
    """The next item, waited for so many seconds at the most, 0 for what is there already; `queue.Empty` where there is
    none."""
    try:
        return items.get_nowait()
    except Empty:
        if seconds <= 0:
            raise
    return items.get(timeout=max(seconds, SHORTEST))


class Inbox(Generic[T]):
    """Items put by many threads, taken all at once by one; and wake-ups, which are remembered if nobody waits."""

    def __init__(self) -> None:
        self._items: SimpleQueue[T | None] = SimpleQueue()
        self._lock = Lock()
        self._seen = 0
        self._closed = False
        self.wakes = 0

    def put(self, item: T) -> bool:
        """Hand an item over; False, and nothing is taken, once the inbox is closed."""
        with self._lock:  # decided: whether the item comes before the end
            if self._closed:
                return False
            self._items.put(item)
            return True

    def wake(self) -> None:
        """Count a wake-up. One that nobody has seen yet stands for all that come before it is."""
        with self._lock:  # decided: whether the taker must be roused
            rouse = self.wakes == self._seen
            self.wakes += 1
        if rouse:
            self._items.put(None)

    def rouse(self) -> None:
        """Have the taker return, with nothing if need be. Safe in a signal handler."""
        self._items.put(None)

    def take(self, timeout: float | None) -> tuple[list[T], bool]:
        """All items that are there, and whether somebody woke.

        Waits up to `timeout` seconds for the first (None: for ever).
        """
        items: list[T] = []
        try:
            item = self._items.get() if timeout is None else take(self._items, min(timeout, LONGEST))
            while True:
                if item is not None:
                    items.append(item)
                item = self._items.get_nowait()
        except Empty:
            pass
        if self.wakes == self._seen:
            return items, False
        with self._lock:  # decided: wake-ups up to here are seen; the next one rouses once more
            self._seen = self.wakes
        return items, True

    def close(self) -> None:
        """Refuse what comes from here on. What was accepted is there to be taken."""
        with self._lock:  # decided: which items come before the end
            self._closed = True


@attrs.define
class IdleWorkers:
    """Workers that wait until one of them is woken; counts them, so that no wake-up goes to nobody. Its owner's lock is
    held where `rest`, `rise` and `wake` are called."""

    _wakes: "SimpleQueue[None]" = attrs.field(factory=SimpleQueue, init=False)
    _resting: int = attrs.field(default=0, init=False)
    _woken: int = attrs.field(default=0, init=False)

    def rest(self) -> None:
        """A worker is about to wait."""
        self._resting += 1

    def rise(self) -> None:
        """A worker waits no longer."""
        self._resting -= 1
        self._woken = max(0, self._woken - 1)

    def wait(self, timeout: float) -> None:
        """Wait to be woken, so many seconds at most."""
        try:
            take(self._wakes, timeout)
        except Empty:
            pass  # the time is up

    def wake(self) -> None:
        """Wake one of those that rest, if any does."""
        if self._resting > self._woken:
            self._woken += 1
            self._wakes.put(None)

    def wake_all(self, count: int) -> None:
        """Wake so many, resting or about to; safe in a signal handler, and without the lock."""
        for _ in range(count):
            self._wakes.put(None)


#: Seconds before a due row that was not claimed (somebody else has it locked) is asked for once more; doubles.
SOON = 0.1

#: Rows of ours that fall due within one grain (seconds) are asked for at one instant, so that few instants are kept.
GRAIN = 0.01

#: Seconds between tries after trouble: the first, and the most where it may pass by itself, and where it may not.
FIRST_BACKOFF = 0.1
MOST_BACKOFF = 5.0
MOST_BACKOFF_PERMANENT = 60.0


#: Seconds until the next claim, at least, where the queue's clock stands still, as a test's does: rows that are due
#: later by it come no nearer.
STANDING = 0.1

NEVER = float("inf")


@attrs.define
class PollTimer:
    """Decides when a queue is asked for rows next. `at` is that instant: `inf` is not before a wake-up.

    `poll` is the interval of claims while nothing happens. Claims that come back full follow each other without pause.
    After a short one the next waits for the interval, for the earliest row known to fall due, or for a wake-up,
    whichever is first. A wake-up that comes while a claim is under way counts for the next wait.
    """

    poll: float
    at: float = attrs.field(default=-NEVER, init=False)
    _next: float = attrs.field(default=-NEVER, init=False)
    _not_before: float = attrs.field(default=-NEVER, init=False)
    _soon: float = attrs.field(default=SOON, init=False)
    _backoff: float = attrs.field(default=0.0, init=False)
    _woken: bool = attrs.field(default=False, init=False)
    _read_at: datetime | None = attrs.field(default=None, init=False)
    _dues: list[float] = attrs.field(factory=list, init=False)
    _known: set[float] = attrs.field(factory=set, init=False)

    def wait(self, now: float) -> float | None:
        """Seconds until the next claim, 0 for now; None: not before a wake-up."""
        return None if self.at == NEVER else max(0.0, self.at - now)

    def pause(self, now: float, seconds: float) -> None:
        """No claim for so long, whatever wakes: a row that asked to wait is due at once, for nothing can hide it."""
        self._not_before = max(self._not_before, now + seconds)
        self._decide(self._next)

    def held_back(self, now: float) -> bool:
        """Whether no claim may come now, although there may be rows."""
        return self._not_before > now or (self._backoff > 0.0 and self._next > now)

    def wake(self, now: float) -> None:
        """Somebody wrote: claim now, unless trouble says to wait."""
        self._woken = True
        if not self._backoff:
            self._decide(now)

    def begin(self, now: float) -> None:
        """A claim begins; what wakes from here on asks for another one."""
        self._woken = False
        if not self._dues or self._dues[0] > now:
            return
        while self._dues and self._dues[0] <= now:
            self._known.discard(heapq.heappop(self._dues))
        self._decide(self._next)

    def full(self, now: float) -> None:
        """The claim found all it asked for: there may be more."""
        self._soon = SOON
        self._decide(now)

    def due_in(self, ahead: Upcoming, now: datetime) -> float | None:
        """Seconds until the next hidden row falls due, as far as the database can tell; 0 where a row is due already,
        None where none is known. `now`: the queue's clock, unless the database told its own."""
        now = ahead.now or now
        stands, self._read_at = now == self._read_at, now
        if ahead.skipped:
            return 0.0
        if ahead.due is None:
            return None
        due_in = (ahead.due - now).total_seconds()
        return max(due_in, STANDING) if stands else due_in

    def short(self, now: float, *, due_in: float | None = None, hidden: bool = True, certain: bool = False) -> None:
        """The claim found less than it asked for.

        `due_in`: seconds until the next hidden row falls due; a due row that stayed (0 or less) is asked for again
        soon, then less and less often. `hidden`: whether unfinished rows are left. `certain`: every write
        wakes us, so that with nothing hidden no claim is needed.
        """
        pause = NEVER if certain and not hidden else self.poll
        if due_in is not None and due_in > 0:
            pause, self._soon = min(pause, due_in), SOON
        elif due_in is not None:
            pause, self._soon = min(pause, self._soon), min(self._soon * 2, self.poll)
        self._decide(now if self._woken else now + pause)

    def due(self, now: float, due_in: float) -> None:
        """A row of ours falls due in so many seconds: claim then at the latest, whatever the table tells."""
        if due_in <= 0:
            self.wake(now)
            return
        due = math.ceil((now + due_in) / GRAIN) * GRAIN
        if due not in self._known:
            self._known.add(due)
            heapq.heappush(self._dues, due)
            self._decide(self._next)

    def trouble(self, now: float, *, spread: float, permanent: bool = False) -> float:
        """A claim failed: the seconds until the next, growing while trouble lasts; `spread` in 0..1 is chance."""
        most = MOST_BACKOFF_PERMANENT if permanent else MOST_BACKOFF
        self._backoff = min(most, max(FIRST_BACKOFF, self._backoff * 2))
        pause = self._backoff * (0.5 + spread / 2)
        self._decide(now + pause)
        return pause

    def recovered(self) -> None:
        """The database did what it was asked, a claim or an extension: claim now."""
        if self._backoff:
            self._backoff = 0.0
            self._decide(-NEVER)

    def _decide(self, following: float) -> None:
        """The next claim comes at `following`, at the first row that falls due, or once the pause is over."""
        self._next = following
        if self._dues and not self._backoff:
            following = min(following, self._dues[0])
        self.at = max(following, self._not_before)


@attrs.define(eq=False)
class ClaimRound:
    """A claim that has begun: the wake-ups that it sees, the rows that it passes over, and whether it is over."""

    wakes: int
    pass_over: PassOver
    over: bool = False


@attrs.define
class ClaimRounds:
    """Who of a queue's connection workers claims next, and what the claims have seen. Claims of several workers may
    overlap and end in any order. `claimer`: the idle worker whose turn it is to claim."""

    claimer: Hashable | None = None
    _wakes: int = 0
    _seen: int = -1
    _last: ClaimRound | None = None
    _doubted: ClaimRound | None = None
    _passed_over: bool = False
    _busy: set[Hashable] = attrs.field(factory=set)

    def wake(self) -> None:
        """A claim that begins from here on must follow."""
        self._wakes += 1

    def begin(self, pass_over: PassOver) -> ClaimRound:
        self._last = ClaimRound(self._wakes, pass_over)
        return self._last

    def found(self, worker: Hashable) -> None:
        """The worker has rows: it is busy until the claim behind their settlement is over."""
        self._passed_over = False
        self._busy.add(worker)
        if self.claimer is worker:
            self.claimer = None

    def found_nothing(self, worker: Hashable, round: ClaimRound) -> bool:
        """Whether that says something about the queue: a claim that began later knows better."""
        self._busy.discard(worker)
        return round is self._last

    def saw_all(self, round: ClaimRound, *, passed_over: bool) -> None:
        """Nothing is due that was there when the claim began, or what is due was `passed_over`. The latter counts once
        two claims say so: a claim may hide a row from those beside it while it tries the row, and from itself."""
        sure = round is not self._doubted and (self._passed_over or not passed_over)
        self._passed_over = passed_over
        if sure:
            self._seen = round.wakes

    def doubt(self) -> None:
        """An earlier claim passed over what the last one may not have seen."""
        self._doubted = self._last
        self._seen = -1

    def forget(self) -> None:
        """There may be more than any claim has seen."""
        self._seen = -1

    def rest(self, worker: Hashable) -> None:
        """The worker is done, whatever it found."""
        self._busy.discard(worker)
        if self.claimer is worker:
            self.claimer = None

    @property
    def at_rest(self) -> bool:
        """Whether nobody claims or will, and the last claim, begun after the last wake-up, found nothing more."""
        return not self._busy and self.claimer is None and self._seen == self._wakes
