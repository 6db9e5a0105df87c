"""Settlements that the database refuses: each row is settled by itself, so that one of them keeps no other."""

import logging
from collections.abc import Callable, Sequence

import attrs

from sqlqueue.consumer.database import Database
from sqlqueue.consumer.handlers import Finished
from sqlqueue.consumer.ledger import Ledger
from sqlqueue.dialect import Trouble
from sqlqueue.settling import Rules, refused
from sqlqueue.strategies.base import Move, Turned

log = logging.getLogger("sqlqueue")


@attrs.frozen
class Singly:
    """Settles a turn's rows one transaction at a time, after the turn as a whole was refused."""

    queue: str
    database: Database
    ledger: Ledger
    rules: Rules
    post: Callable[[Sequence[Finished], Turned], None]

    def settle(self) -> None:
        """Settle all that is unsettled. A row that is refused failed: its policy says where it goes; if all of that is
        refused, its lease ends by itself. Raises what trying again may mend, with the rest still unsettled."""
        unsettled = self.ledger.unsettled
        while unsettled:
            one = unsettled[-1]
            tried, error = one, self._try(one)
            while error is not None and (tried is one or tried.verdict.settlement.move is Move.DEAD_LETTER):
                rules, attempt = one.work.rules or self.rules, one.work.delivery.attempt
                verdict = refused(rules, attempt, tried.verdict, error, self.database.now())
                tried = attrs.evolve(tried, verdict=verdict)
                error = self._try(tried)
            unsettled.remove(one)
            if error is not None:
                self.ledger.drop(one.work)

    def _try(self, one: Finished) -> Exception | None:
        """Settle one row; the error where the database refuses that."""
        claim = one.work.delivery.claim
        try:
            turned = self.database.turn([(claim, one.verdict.settlement)], 0)
        except Exception as error:  # sorted by what the dialect makes of it
            if self.database.classify(error) is not Trouble.PERMANENT:
                raise
            log.error("queue %s: row %r: it could not be %s", self.queue, claim.id, one.verdict.kind, exc_info=error)
            return error
        self.post([one], turned)
        return None
