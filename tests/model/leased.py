"""A consumer by leases, without threads: what it should claim and settle, and what it does."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from sqlqueue import Role
from sqlqueue.outcome import Move, Settlement
from sqlqueue.strategies.claim import Claim, Turn
from sqlqueue.strategies.lease import Lease
from sqlqueue.strategies.plan import QueuePlan
from sqlqueue.strategies.scan import SWEEP_AFTER
from tests.model.queue import AT_ONCE, LEASE, Row, Table


def ids(claims: Iterable[Claim]) -> list[int]:
    """A turn settles move by move, so that it tells of none in order."""
    return sorted(claim.id for claim in claims)


class Member:
    """A consumer without threads: its strategy, and the claims that it has not settled."""

    def __init__(self, table: Table, claims: Sequence[Claim] = ()) -> None:
        form = table.form
        payload = form.spec.role(Role.PAYLOAD)
        assert payload is not None
        self.table = table
        self.claims = list(claims)
        self._goes_round = False
        self.strategy = Lease(
            QueuePlan(
                sql=table.sql,
                columns=(payload,),
                lease=LEASE,
                most=3,
                cap=form.cap,
                group=form.group,
                dead_letters=form.dead_letters(table.sql, (payload,)),
            )
        )

    def turn(self, settling: Sequence[tuple[Claim, Settlement]], limit: int) -> None:
        """Settle and claim, in the database and in the model; both must say the same.

        As a pump does, it extends first what it still holds and does not settle, where leases have ended meanwhile.
        """
        now = self.table.now
        settled = [claim for claim, _ in settling]
        if any(claim.expires and claim.expires <= now for claim in self.claims if claim not in settled):
            self.extend([claim for claim in self.claims if claim not in settled])
        with self.table.broker.pool.connection() as connection:
            turned = self.strategy.turn(connection, Turn(settlements=settling, limit=limit, now=now))
        late = [claim for claim, settlement in settling if not self._settle(claim, settlement, now)]
        gone = [claim for claim in late if claim.id not in self.table.rows]
        assert ids(turned.gone) == ids(gone)
        assert ids(turned.lost) == ids(claim for claim in late if claim not in gone)
        changed = {claim.id for claim in settled if claim not in late}
        self._goes_round = self._goes_round or any(self._comes_back(settlement, now) for _, settlement in settling)
        apart = self.table.form.dead is not None and any(one.move is Move.DEAD_LETTER for _, one in settling)
        rows = self._takes(set() if apart else changed, limit, turned.claims)
        expected = [self._claim(row, now) for row in rows]
        assert [(claim.id, claim.attempt, claim.expires) for claim in turned.claims] == expected
        self.claims = [claim for claim in self.claims if claim not in settled] + list(turned.claims)

    def _takes(self, changed: set[int], limit: int, claims: Sequence[Claim]) -> list[Row]:
        free = rows = self.table.claimable()
        if self.table.others.kind == "postgres":
            # One statement sees the table as it was before: what it lets go is for the next turn. A walk along the
            # lines is one of its own, and so is a move to another table, which makes one of each in its turn.
            rows = [row for row in rows if row.id not in changed or self.table.line(row) is not None]
        if self.table.form.spec.fifo_column:
            # The lines have their turns, and one of its rows may wait for none of the others.
            return self.table.check_took(claims, free, min(len(rows), limit), min(len(free), limit))
        rows = rows[:limit]
        return self.table.check_took(claims, free, len(rows), limit) if self._goes_round else rows

    def _comes_back(self, settlement: Settlement, now: datetime) -> bool:
        """Whether a row asks to come again soon by its lease: those behind it are claimed first (PAINS 19)."""
        if self.table.has(Role.RETRY_AFTER) or settlement.move is not Move.RETRY:
            return False
        return settlement.due is None or settlement.due < now + SWEEP_AFTER

    def _claim(self, row: Row, now: datetime) -> tuple[int, int | None, datetime]:
        has = self.table.has
        if has(Role.ATTEMPT):
            row.attempt = 1 if row.cleared else (row.attempt or 0) + 1
        row.cleared = False
        row.lease = now + timedelta(seconds=LEASE)
        row.running = has(Role.RUNNING)
        return row.id, row.attempt if has(Role.ATTEMPT) else None, row.lease

    def _settle(self, claim: Claim, settlement: Settlement, now: datetime) -> bool:
        """Whether the settlement takes effect, and its effect."""
        if not self.table.holds(claim):
            return False
        row = self.table.rows[claim.id]
        row.lease, row.running = None, False
        if settlement.move is Move.FINISH:
            self.table.finish(row, now)
        elif settlement.move is Move.DEAD_LETTER:
            self.table.bury(row, now)
        elif settlement.move is Move.PARK:
            row.error = settlement.error
        elif settlement.move is Move.RELEASE:
            self._release(row, settlement.due, now)
        elif self.table.has(Role.RETRY_AFTER):
            row.retry_after = settlement.due or now + AT_ONCE
        else:
            row.lease = settlement.due or now + AT_ONCE
        return True

    def _release(self, row: Row, until: datetime | None, now: datetime) -> None:
        row.lease = until
        if not self.table.has(Role.ATTEMPT):
            return
        row.attempt = (row.attempt or 0) - 1
        if self.table.form.cap is not None and row.attempt >= self.table.form.cap and until is None:
            # Its attempts are spent by crashes, which an ended lease tells from an error that was cleared.
            row.lease = now

    def extend(self, claims: Sequence[Claim]) -> None:
        now = self.table.now
        lost = [claim for claim in claims if not self.table.holds(claim)]
        with self.table.broker.pool.connection() as connection:
            assert list(self.strategy.extend(connection, claims, now)) == lost
        for claim in claims:
            if claim not in lost:
                self.table.rows[claim.id].lease = now + timedelta(seconds=LEASE)
        self.claims = [claim for claim in self.claims if claim not in lost]
