"""What the lease's statements say of tasks: rows that go from step to step, and that somebody may resume by hand.

A task that waits for its retry keeps an ended lease. So one that has been tried and has none was parked, and its error
cleared since, whatever its steps' limits are: its count starts afresh.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

import attrs

from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import Role
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import fill
from sqlqueue.statements import Settlements, finish, park, release, retry, settle
from sqlqueue.strategies.plan import Shape

#: The cap that claims are made with: whoever has been tried, and holds no lease, was resumed.
RESUMED = 1

# What runs without a lease is another program's.
OURS = "({lease} IS NOT NULL OR {running} = FALSE)"

# That program may be gone. It, or a trigger of its table, notes each change.
OURS_OR_LEFT = "({lease} IS NOT NULL OR {running} = FALSE OR {left})"


#: Rows that a claim is told to leave alone, at most: it walks over each of them.
MOST_LEFT = 1000


class LeftAlone:
    """Rows that this process leaves to others for a while, by their ids as the driver returned them. Safe to use from
    many threads."""

    def __init__(self) -> None:
        self._until: dict[Any, datetime] = {}
        self._lock = Lock()

    def leave(self, id: Any, now: datetime, until: datetime) -> bool:
        """Leave a row alone until then; False where too many are already."""
        with self._lock:  # decided: whether there is room
            if len(self._until) >= MOST_LEFT:
                self._until = {one: end for one, end in self._until.items() if end > now}
            if len(self._until) >= MOST_LEFT:
                return False
            self._until[id] = until
            return True

    def ids(self, now: datetime) -> Sequence[Any]:
        if not self._until:
            return ()
        with self._lock:  # decided: who is left alone now
            return [id for id, until in self._until.items() if until > now]


@attrs.frozen(kw_only=True)
class Stepping:
    """What makes the rows of a queue tasks.

    `updated_at`: the column that notes when a row was changed, if there is one. `adopt_after`: seconds without a change
    after which a row that runs without a lease counts as left by its program; None: it never does. `left`: the rows
    that this process leaves alone.
    """

    updated_at: ColumnSpec | None = None
    adopt_after: float | None = None
    left: LeftAlone = attrs.field(factory=LeftAlone, eq=False)

    def shape(self, sql: QueueSQL, assigned: Callable[[str], str]) -> Shape:
        """The statements of a queue of tasks. `assigned`: a given step as the payload's column takes it."""
        listed = sql.dialect.list_encoder() or list
        moments: dict[str, Callable[[datetime], object]] = {"left_alone": lambda now: listed(self.left.ids(now))}
        noted: list[str] = []
        if self.updated_at is not None:
            encode = sql.dialect.encoder(self.updated_at) or (lambda now: now)
            noted = [f"{sql.dialect.quote(self.updated_at.name)} = :now_updated_at"]
            moments["now_updated_at"] = encode
            if self.adopt_after is not None:
                ago = timedelta(seconds=self.adopt_after)
                moments["changed_before"] = lambda now: encode(now - ago)
        return Shape(
            settlements=_settlements(sql, noted, assigned),
            cap=RESUMED,
            free=[_ours(sql, self), f"NOT {sql.dialect.any_of(sql.spec.id, sql.column(Role.ID), 'left_alone')}"],
            taking=noted,
            moments=moments,
        )


def _ours(sql: QueueSQL, stepping: Stepping) -> str:
    names = {"lease": sql.column(Role.LEASE), "running": sql.column(Role.RUNNING)}
    if stepping.adopt_after is None or stepping.updated_at is None:
        return fill(OURS, names)
    updated_at = stepping.updated_at
    left = sql.dialect.ended(sql.qualified(updated_at), updated_at, ":changed_before")
    return fill(OURS_OR_LEFT, {**names, "left": left})


def _settlements(sql: QueueSQL, noted: list[str], assigned: Callable[[str], str]) -> Settlements:
    lease, attempt = sql.spec.role(Role.LEASE), sql.spec.role(Role.ATTEMPT)
    payload, retry_after = sql.spec.role(Role.PAYLOAD), sql.spec.role(Role.RETRY_AFTER)
    assert lease is not None
    assert attempt is not None
    assert payload is not None
    assert retry_after is not None
    held = {"id": sql.spec.id, "token": lease}
    waits, tried = {Role.LEASE: sql.now(Role.LEASE)}, {Role.ATTEMPT: sql.given("attempt")}
    return Settlements(
        finish=finish(sql, held, beside=noted),
        retry=retry(sql, held, instead=waits, beside=noted),
        park=park(sql, {**held, "attempt": attempt}, instead=tried, beside=noted),
        release=release(sql, {**held, "until": lease}, beside=noted),
        advance=settle(
            sql,
            "advance",
            {**held, "stored": payload, "due": retry_after},
            first=Role.PAYLOAD,
            beside=noted,
            values={"stored": assigned(sql.given("stored")), "due": sql.given("due")},
        ),
    )
