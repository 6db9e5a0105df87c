"""Lease, for tasks: rows that go from step to step, and that somebody may resume by hand.

A task that waits for its retry keeps an ended lease. So one that has been tried and has none was parked, and its error
cleared since, whatever its steps' limits are: its count starts afresh.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

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


@attrs.frozen(kw_only=True)
class Stepping:
    """What makes the rows of a queue tasks.

    `updated_at`: the column that notes when a row was changed, if there is one. `adopt_after`: seconds without a change
    after which a row that runs without a lease counts as left by its program; None: it never does.
    """

    updated_at: ColumnSpec | None = None
    adopt_after: float | None = None


def shape_of(words: Words, stepping: Stepping, assigned: Callable[[str], str]) -> Shape:
    """The statements of a queue of tasks. `assigned`: a given step as the payload's column takes it."""
    moments: dict[str, Callable[[datetime], object]] = {}
    noted: list[str] = []
    if stepping.updated_at is not None:
        encode = words.dialect.encoder(stepping.updated_at) or (lambda now: now)
        noted = [f"{words.dialect.quote(stepping.updated_at.name)} = :now_updated_at"]
        moments["now_updated_at"] = encode
        if stepping.adopt_after is not None:
            ago = timedelta(seconds=stepping.adopt_after)
            moments["left_before"] = lambda now: encode(now - ago)
    return Shape(
        settlements=_settlements(words, noted, assigned),
        free=[_free(words, stepping)],
        taking=noted,
        moments=moments,
    )


def _free(words: Words, stepping: Stepping) -> str:
    names = {"lease": words.column(Role.LEASE), "running": words.column(Role.RUNNING)}
    if stepping.adopt_after is None or stepping.updated_at is None:
        return fill(OURS, names)
    updated_at = stepping.updated_at
    left = words.dialect.ended(words.qualified(updated_at), updated_at, ":left_before")
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
