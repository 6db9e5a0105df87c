"""What goes into a strategy and what comes out: the turn, the claims with their tokens, and what a queue waits for."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, ClassVar, Protocol, TypeVar

import attrs

from sqlqueue.dialect import Connection, Row
from sqlqueue.outcome import Settlement
from sqlqueue.sql import Statement

#: The connections that a strategy works on.
C = TypeVar("C", contravariant=True)


@attrs.define(eq=False)
class Claim:
    """A row in work. `id` and `token` are as the driver binds them.

    `token`: what holds the row; a lease's expiry, which an extension moves together with `expires`, or an advisory
    lock's key; None under a row lock. `expires`: when the lease ends, None without one. `attempt` counts deliveries
    begun, this one included; None where the table does not count. `row` holds the values of the columns that the
    strategy was asked to read.
    """

    id: Any
    token: Any
    expires: datetime | None
    attempt: int | None
    row: Row


@attrs.frozen
class PassOver:
    """Rows that a claim leaves alone: those of `keys`, but for the rows of `ids`. Both as the driver returned them."""

    keys: Sequence[Any] = ()
    ids: Sequence[Any] = ()


NOBODY = PassOver()


@attrs.frozen(kw_only=True)
class Turn:
    """One trip to the database: it settles deliveries that ended, and claims up to `limit` rows.

    `now`: by the queue's clock. `pass_over`: what the claim leaves alone, heeded only by a strategy that keeps order
    by key.
    """

    settlements: Sequence[tuple[Claim, Settlement]] = ()
    limit: int = 0
    now: datetime
    pass_over: PassOver = NOBODY


@attrs.frozen
class Turned:
    """What a turn did: new claims in claim order, and the claims whose settlement changed nothing because the
    row belongs to somebody else now (`lost`) or is not there any more (`gone`). `failed`: why its claim did, after the
    settlement had been committed."""

    claims: Sequence[Claim] = ()
    lost: Sequence[Claim] = ()
    gone: Sequence[Claim] = ()
    failed: BaseException | None = None


@attrs.frozen
class Upcoming:
    """What a queue that has nothing to claim is waiting for.

    `due`: when the next hidden row falls due, as far as the table can tell. `hidden`: whether there are
    unfinished rows at all; where there are none, only a commit can bring work. `skipped`: whether a row is due
    that the claim did not take, because somebody else has it locked or it was committed just now. `now`: the
    database's own, where rows are due by it.
    """

    due: datetime | None = None
    hidden: bool = True
    skipped: bool = False
    now: datetime | None = None


class Strategy(Protocol[C]):
    """How rows are held while they are in work. Everything that a consumer does to rows goes through here."""

    def turn(self, connection: C, turn: Turn) -> Turned:
        """Settle what is finished and claim what fits, in one round trip.

        Where a delivery holds its connection, `connection` is the one that the rows to be settled were claimed on.
        """
        ...

    def look_ahead(self, connection: C, now: datetime, pass_over: PassOver = NOBODY, held: int = 0) -> Upcoming:
        """What a queue with nothing to claim waits for. `held`: rows that this consumer has in flight."""
        ...

    def unfinished(self, connection: C, id: Any) -> bool:
        """Whether the row is still to be worked off, here or elsewhere."""
        ...

    def statements(self) -> Sequence[Statement]:
        """Every statement that the strategy may run, for the check at start."""
        ...

    @property
    def claim(self) -> Statement:
        """The statement whose order an index should serve."""
        ...


class LeaseStrategy(Strategy[Connection], Protocol):
    """Deliveries hold no connection: the dispatcher settles them and extends their leases."""

    def extend(self, connection: Connection, claims: Sequence[Claim], now: datetime) -> Sequence[Claim]:
        """Hold rows for a further lease from `now`; the claims that were lost."""
        ...


class ConnectionStrategy(Strategy[Any], Protocol):
    """Each delivery holds the connection that its row was claimed on until it is settled.

    `one_transaction`: whether the rows of a connection are held by one transaction, so that none of them can be let go
    by itself. `by_session`: whether rows are held by their connection's session, which the server sees to have ended
    only some time after the connection was closed.
    """

    one_transaction: ClassVar[bool]
    by_session: ClassVar[bool]

    def reclaim(self, connection: Any, claim: Claim) -> bool:
        """After a settlement that failed: whether the row is, or could be, held again to be settled otherwise."""
        ...

    def take_over(self, connection: Any, claim: Claim) -> bool:
        """On another connection than the claim's, which was closed: whether the row is, or could be, held there to be
        settled. Where it is not, this connection holds nothing of it."""
        ...

    def let_go(self, connection: Any, claim: Claim) -> None:
        """Hold the row no longer, which could not be settled: it returns to the queue as it is."""
        ...
