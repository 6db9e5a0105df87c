"""What every strategy answers: claims with their tokens, settlements fenced by them."""

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Protocol

import attrs

from sqlqueue.dialect import Connection, Row
from sqlqueue.sql import Statement


@attrs.define(eq=False)
class Claim:
    """A row in work. `id` and `token` are as the driver binds them; an extension moves `token` and `expires`.

    `attempt` counts deliveries begun, this one included; None where the table does not count. `row` holds the
    values of the columns that the strategy was asked to read.
    """

    id: Any
    token: Any
    expires: datetime
    attempt: int | None
    row: Row


class Move(Enum):
    """Where a settlement takes the row."""

    FINISH = "finish"
    RETRY = "retry"
    PARK = "park"
    RELEASE = "release"


@attrs.frozen
class Settlement:
    """How a delivery ends.

    `due`: when a retried or released row may be claimed again; None is at once. `error`: what a parked row shows.
    """

    move: Move
    due: datetime | None = None
    error: str | None = None


@attrs.frozen
class PassOver:
    """Rows that a claim leaves alone: those of `keys`, but for the rows of `ids`. Both as the driver returned them."""

    keys: Sequence[Any] = ()
    ids: Sequence[Any] = ()


NOBODY = PassOver()
ACKNOWLEDGE = Settlement(Move.FINISH)
RELEASE = Settlement(Move.RELEASE)


@attrs.frozen
class Turned:
    """What a turn did: new claims in claim order, and the claims whose settlement changed nothing because the
    row belongs to somebody else now (`lost`) or is not there any more (`gone`)."""

    claims: Sequence[Claim] = ()
    lost: Sequence[Claim] = ()
    gone: Sequence[Claim] = ()


@attrs.frozen
class Ahead:
    """What a queue that has nothing to claim is waiting for.

    `due`: when the next hidden row falls due, as far as the table can tell. `hidden`: whether there are
    unfinished rows at all; where there are none, only a commit can bring work. `passed_over`: whether a row is due
    that the claim did not take, because somebody else has it locked or it was committed just now.
    """

    due: datetime | None = None
    hidden: bool = True
    passed_over: bool = False


class Strategy(Protocol):
    """How rows are held while they are in work. Everything that a consumer does to rows goes through here."""

    #: Whether a delivery keeps its connection until it is settled (seats), or none is held (pump).
    holds_connection: bool

    def turn(
        self,
        connection: Connection,
        settlements: Sequence[tuple[Claim, Settlement]],
        limit: int,
        now: datetime,
        pass_over: PassOver = NOBODY,
    ) -> Turned:
        """Settle what is finished and claim up to `limit` rows, in one transaction and one round trip.

        Only a strategy made for order by key heeds `pass_over`.
        """
        ...

    def extend(self, connection: Connection, claims: Sequence[Claim], now: datetime) -> Sequence[Claim]:
        """Keep rows held for a further lease from `now`; the claims that were lost."""
        ...

    def look_ahead(self, connection: Connection, now: datetime) -> Ahead:
        """What a queue with nothing to claim waits for."""
        ...

    def unfinished(self, connection: Connection, id: Any) -> bool:
        """Whether the row is still to be worked off, here or elsewhere."""
        ...

    def statements(self) -> Sequence[Statement]:
        """Every statement that the strategy may run, for the check at start."""
        ...

    @property
    def claim(self) -> Statement:
        """The statement whose order an index should serve."""
        ...
