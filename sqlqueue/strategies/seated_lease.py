"""Lease for transactional handlers: each delivery holds a connection as well, for the transaction that settles it.

The claim commits by itself, as for every lease, so that a crash counts as an attempt. The acknowledgement takes effect
only while the row holds the token; else what the handler wrote is rolled back, and the lease was lost.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import ClassVar

from sqlqueue.dialect import Connection
from sqlqueue.sql import Call
from sqlqueue.strategies.base import NOBODY, Claim, PassOver, Settlement, Turned
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.settling import changed_nothing
from sqlqueue.strategies.transaction import Transaction


class SeatedLease(Lease):
    """The lease strategy of a queue whose deliveries hold their connection."""

    one_transaction: ClassVar[bool] = False
    by_session: ClassVar[bool] = False

    def turn(
        self,
        connection: Connection,
        settlements: Sequence[tuple[Claim, Settlement]],
        limit: int,
        now: datetime,
        pass_over: PassOver = NOBODY,
    ) -> Turned:
        if not (isinstance(connection, Transaction) and connection.open):
            return super().turn(connection, settlements, limit, now, pass_over)
        settled = self._acknowledge(connection, settlements, now)
        if not limit or connection.closed:
            return settled
        try:
            claims = super().turn(connection, (), limit, now, pass_over).claims
        except Exception as error:  # noqa: BLE001 - the settlement stands
            return Turned(lost=settled.lost, gone=settled.gone, failed=error)
        return Turned(claims=claims, lost=settled.lost, gone=settled.gone)

    def _acknowledge(
        self, connection: Transaction, settlements: Sequence[tuple[Claim, Settlement]], now: datetime
    ) -> Turned:
        settling = self._settling.calls(settlements, self._binding.values(now, NOBODY), now)
        results = connection.settle_within([call for call, _ in settling])
        late = changed_nothing(settling, results)
        gone = [claim for claim in late if not connection.ask_within([Call(self._present, {"id": claim.id})])[0]]
        lost = [claim for claim in late if claim not in gone]
        if lost:
            connection.roll_back()
        else:
            connection.commit()
        return Turned(lost=lost, gone=gone)

    def hold_again(self, connection: Transaction, claim: Claim) -> bool:
        """The lease outlives a transaction that failed."""
        connection.roll_back()
        return not connection.closed

    def take_over(self, connection: Transaction, claim: Claim) -> bool:
        """The lease is no connection's, and its token tells who holds the row."""
        return not connection.closed

    def let_go(self, connection: Transaction, claim: Claim) -> None:
        """Nothing but what the handler wrote: the lease ends by itself."""
        connection.roll_back()
