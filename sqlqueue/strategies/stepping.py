"""Lease, for tasks: rows that go from step to step, and that somebody may resume by hand.

A task that waits for its retry keeps an ended lease. So one that has been tried and has none was parked, and its error
cleared since, whatever its steps' limits are: its count starts afresh.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

import attrs

from sqlqueue.column import Role
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import fill
from sqlqueue.statements import ADVANCE, Settlements, finish, give_back, park, retry
from sqlqueue.strategies.lease import Shape
from sqlqueue.words import Words, also

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


def shape_of(words: Words, stepping: Stepping, assigned: Callable[[str], str]) -> Shape:
    """The statements of a queue of tasks. `assigned`: a given step as the payload's column takes it."""
    listed = words.dialect.list_encoder() or list
    moments: dict[str, Callable[[datetime], object]] = {"left_alone": lambda now: listed(stepping.left.ids(now))}
    noted: list[str] = []
    if stepping.updated_at is not None:
        encode = words.dialect.encoder(stepping.updated_at) or (lambda now: now)
        noted = [f"{words.dialect.quote(stepping.updated_at.name)} = :now_updated_at"]
        moments["now_updated_at"] = encode
        if stepping.adopt_after is not None:
            ago = timedelta(seconds=stepping.adopt_after)
            moments["changed_before"] = lambda now: encode(now - ago)
    return Shape(
        settlements=_settlements(words, noted, assigned),
        free=[
            _ours(words, stepping),
            f"NOT {words.dialect.any_of(words.spec.id, words.column(Role.ID), 'left_alone')}",
        ],
        taking=noted,
        moments=moments,
    )


def _ours(words: Words, stepping: Stepping) -> str:
    names = {"lease": words.column(Role.LEASE), "running": words.column(Role.RUNNING)}
    if stepping.adopt_after is None or stepping.updated_at is None:
        return fill(OURS, names)
    updated_at = stepping.updated_at
    left = words.dialect.ended(words.qualified(updated_at), updated_at, ":changed_before")
    return fill(OURS_OR_LEFT, {**names, "left": left})


def _settlements(words: Words, noted: list[str], assigned: Callable[[str], str]) -> Settlements:
    lease, attempt = words.spec.role(Role.LEASE), words.spec.role(Role.ATTEMPT)
    payload, retry_after = words.spec.role(Role.PAYLOAD), words.spec.role(Role.RETRY_AFTER)
    assert lease is not None
    assert attempt is not None
    assert payload is not None
    assert retry_after is not None
    held = {"id": words.spec.id, "token": lease}
    rest = [*words.not_running(), *noted]
    let_go = [f"{words.bare(Role.LEASE)} = NULL", *rest]
    waits = [f"{words.bare(Role.LEASE)} = {words.now(Role.LEASE)}", *rest]
    tried = f"{words.bare(Role.ATTEMPT)} = {words.given('attempt')}"
    return Settlements(
        finish=finish(words, held, let_go),
        retry=retry(words, held, waits, None),
        park=park(words, {**held, "attempt": attempt}, [tried, *let_go]),
        release=give_back(words, {**held, "until": lease}, rest),
        advance=words.settlement(
            "advance",
            ADVANCE,
            {**held, "stored": payload, "due": retry_after},
            payload=words.bare(Role.PAYLOAD),
            stored=assigned(words.given("stored")),
            retry_after=words.bare(Role.RETRY_AFTER),
            attempt=words.bare(Role.ATTEMPT),
            let_go=also(let_go),
        ),
    )
