"""Outcomes and settlements: what a handler returns or raises, and where its row goes. Pure functions decide.

A handler returns or raises a `Retry`, a `Drop` or a `DeadLetter`. None acknowledges; any other exception is a failure.
"""

import builtins
import traceback
from collections.abc import Callable, Iterator
from datetime import datetime
from enum import Enum
from typing import Any

import attrs

from sqlqueue.clock import UTC, Duration, later, seconds
from sqlqueue.errors import DecodeError
from sqlqueue.retry import DEFAULT_RETRY, RetryPolicy


@attrs.frozen
class Retry(Exception):  # noqa: N818 - an outcome that may be raised, not an error
    """Deliver the row once more: at once, or hidden for `after` (seconds or timedelta).

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


class Move(Enum):
    """Where a settlement takes the row."""

    FINISH = "finish"
    RETRY = "retry"
    ADVANCE = "advance"
    PARK = "park"
    DEAD_LETTER = "dead letter"
    RELEASE = "release"


@attrs.frozen
class Settlement:
    """How a delivery ends.

    `due`: when a row that stays in the queue may be claimed the next time; None is at once. `error`: what a parked row
    shows, and why a dead letter is one. `keeps`: whether what a transactional handler wrote is committed; only an
    acknowledgement and an advance do that. `payload`: what an advancing row holds from now on, as the driver binds it.
    `begun`: whether the delivery that the claim counted has begun; a parked task shows that.
    """

    move: Move
    due: datetime | None = None
    error: str | None = None
    keeps: bool = False
    payload: Any = None
    begun: bool = True


ACKNOWLEDGE = Settlement(Move.FINISH, keeps=True)
DROP = Settlement(Move.FINISH)
RELEASE = Settlement(Move.RELEASE)

#: Seconds for which a row that cannot be read stays hidden, where no column can hold its error. It is never deleted.
UNREADABLE = 3600.0

#: A moment that never comes, and that every database can hold.
FAR = datetime(9000, 1, 1, tzinfo=UTC)

#: Characters of an error that a parked row shows.
ERROR_LENGTH = 10_000

#: How many members of a group of errors are shown, and how many groups within groups.
MOST_MEMBERS, DEEPEST = 10, 3

#: Python 3.10 has no groups of its own.
GROUP: Any = getattr(builtins, "BaseExceptionGroup", ())


@attrs.frozen(kw_only=True)
class Rules:
    """The rules of one queue: the cap on attempts, the retry policies, whether the table has a column to park rows in,
    and the name of the queue that the dead letters go to (None: there is none)."""

    max_attempts: int | None
    retry: RetryPolicy
    on_decode_error: RetryPolicy
    parks: bool
    dead_letter: str | None = None

    @property
    def keeps(self) -> bool:
        """Whether the table, or the dead letters' queue, keeps a row that is given up."""
        return self.parks or self.dead_letter is not None


@attrs.frozen
class Verdict:
    """A settlement and the name of its event. `problem` is logged as an error. `remark`: the reason, where the row does
    not show it: what failed before a retry, or why the row was dropped."""

    settlement: Settlement
    kind: str
    problem: str | None = None
    remark: str | None = None

    @property
    def processed(self) -> bool:
        """Whether the handler is done with the row: it acknowledged the row, or dropped it on purpose."""
        return self.settlement.move is Move.FINISH and self.problem is None


ACKNOWLEDGED = Verdict(ACKNOWLEDGE, "acknowledged")


def describe_error(error: BaseException) -> str:
    """An error's text with its causes, the newest first, as a parked row shows it."""
    lines = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        lines.append("\n".join(_with_members(current)))
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return storable("\ncaused by: ".join(lines))


def _with_members(error: BaseException, depth: int = 0) -> Iterator[str]:
    """An error's text, and below it those of the errors that a group holds: the first few, of each the first few."""
    yield "".join(traceback.format_exception_only(error)).strip()
    if not isinstance(error, GROUP) or depth == DEEPEST:
        return
    for member in error.exceptions[:MOST_MEMBERS]:
        first, *rest = _with_members(member, depth + 1)
        yield from (f"- {first}", *(f"  {line}" for line in rest))
    if len(error.exceptions) > MOST_MEMBERS:
        yield f"- and {len(error.exceptions) - MOST_MEMBERS} more"


def describe_value(value: object) -> str:
    """A value of a message or of a handler, for an error's text."""
    return _written(value, repr)[:200]


def _written(value: object, write: Callable[[object], str]) -> str:
    """The value as text. A `__repr__` or `__str__` of the user's may raise anything."""
    try:
        return write(value)
    except Exception as error:  # noqa: BLE001 - such as that of a row whose session is closed
        return f"<{type(value).__qualname__} whose {write.__name__} fails with {type(error).__name__}>"


def storable(text: object) -> str:
    """Text that every database takes: cut to a length, with NUL and halves of surrogate pairs escaped."""
    shown = _written(text, str)[:ERROR_LENGTH].encode(errors="backslashreplace").decode()
    return shown.replace("\0", "\\0")[:ERROR_LENGTH]


def decide(rules: Rules, attempt: int | None, outcome: Any, now: datetime) -> Verdict:
    """Where a row goes whose handler returned or raised `outcome` in its `attempt`-th delivery."""
    if outcome is None:
        return ACKNOWLEDGED
    last = rules.max_attempts is not None and attempt is not None and attempt >= rules.max_attempts
    if isinstance(outcome, Drop):
        return Verdict(DROP, "dropped", remark=outcome.reason)
    if isinstance(outcome, DeadLetter):
        return spend(rules, outcome.reason)
    if isinstance(outcome, Retry):
        if last:
            return spend(rules, f"asked for a retry in its last attempt ({attempt})")
        return Verdict(Settlement(Move.RETRY, due=_due(now, outcome.after)), "retried")
    if isinstance(outcome, DecodeError):
        return _unreadable(rules, attempt, outcome, now, last)
    if isinstance(outcome, BaseException):
        retried = None if last else _retry(rules.retry, attempt, outcome, now)
        return retried or spend(rules, describe_error(outcome))
    return ACKNOWLEDGED


def spend(rules: Rules, reason: str) -> Verdict:
    """Give a row up: it becomes a dead letter, else it is parked with its error, else it is dropped. Each is logged as
    an error."""
    reason = storable(reason)
    if rules.dead_letter is not None:
        return Verdict(
            Settlement(Move.DEAD_LETTER, error=reason), "dead_lettered", f"{reason} (moved to {rules.dead_letter})"
        )
    if rules.parks:
        return Verdict(Settlement(Move.PARK, error=reason), "parked", problem=reason)
    return Verdict(DROP, "dropped", problem=f"{reason} (dropped: the table has no column to park it in)")


def noted(verdict: Verdict, note: str) -> Verdict:
    """The verdict with a note after its reason, where it has one."""
    room = ERROR_LENGTH - len(note) - 1
    settlement, problem = verdict.settlement, verdict.problem
    if settlement.error is not None:
        settlement = attrs.evolve(settlement, error=f"{settlement.error[:room]}\n{note}")
    return attrs.evolve(verdict, settlement=settlement, problem=problem and f"{problem}\n{note}")


def spent_at_claim(rules: Rules, attempt: int | None) -> Verdict | None:
    """The verdict for a row that was at its cap when it was claimed: the worker of its last attempt was lost."""
    if rules.max_attempts is None or attempt is None or attempt <= rules.max_attempts:
        return None
    return spend(rules, f"the worker was lost in the last of {rules.max_attempts} attempts")


def _unreadable(rules: Rules, attempt: int | None, error: DecodeError, now: datetime, last: bool) -> Verdict:
    retried = None if last else _retry(rules.on_decode_error, attempt, error, now)
    if retried is not None:
        return retried
    if rules.keeps:
        return spend(rules, describe_error(error))
    return _hidden(f"{error} (kept, hidden for {UNREADABLE:.0f} s: the table has no column to park it in)", now)


def _hidden(problem: str, now: datetime) -> Verdict:
    return Verdict(Settlement(Move.RETRY, due=later(now, UNREADABLE)), "retried", problem=problem)


def refused(rules: Rules, attempt: int | None, verdict: Verdict, error: BaseException, now: datetime) -> Verdict:
    """Where a row goes when the database refused its settlement with `error`, which counts as a failure of the row.

    A row whose dead letter is refused is parked, else hidden for a while. It is neither dropped nor tried for ever.
    """
    if verdict.settlement.move is not Move.DEAD_LETTER:
        return decide(rules, attempt, error, now)
    reason = storable(f"{verdict.settlement.error}\ncould not be moved to {rules.dead_letter}: {describe_error(error)}")
    if rules.parks:
        return spend(attrs.evolve(rules, dead_letter=None), reason)
    return _hidden(f"{reason} (kept, hidden for {UNREADABLE:.0f} s: the table has no column to park it in)", now)


def _due(now: datetime, after: Any) -> datetime | None:
    """When a row is due that waits `after` seconds; None is at once. A delay past the last year becomes `FAR`."""
    if not after:
        return None
    try:
        return later(now, after, "Retry(after)")
    except ValueError:
        return FAR


def _retry(policy: RetryPolicy, attempt: int | None, error: BaseException, now: datetime) -> Verdict | None:
    """A retry, when the policy says so; None where the policy gives the row up.

    Where the policy itself fails, the default policy decides, so that no row is lost, and the failure is logged.
    """
    problem = None
    try:
        after = policy.delay(attempt or 1, error)
        if after is not None:
            after = seconds(after, "the retry policy's delay")
    except Exception as failure:  # noqa: BLE001 - a function of the user's may raise anything
        after = DEFAULT_RETRY.delay(attempt or 1)
        problem = f"its retry policy failed, so the default one decided: {describe_error(failure)}"
    if after is None:
        return None
    return Verdict(Settlement(Move.RETRY, due=_due(now, after)), "retried", problem, describe_error(error))
