"""What the model of the queue knows: the rows that a table should hold, and a consumer's claims."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import attrs

from sqlqueue import Broker, Role
from sqlqueue.clock import UTC
from sqlqueue.strategies.base import Claim, Move, Settlement
from sqlqueue.strategies.bookmark import SWEEP_AFTER
from sqlqueue.strategies.lease import Lease
from sqlqueue.testing.clock import START
from sqlqueue.words import Words
from tests.model.forms import Form, Others

#: Seconds.
LEASE = 30.0

#: "At once" is just past the turn that asks for it.
AT_ONCE = timedelta(microseconds=1)

EVER = datetime(1, 1, 1, tzinfo=UTC)


@attrs.define
class Row:
    """What a row should look like; `cleared`: somebody cleared its error, with its attempts spent."""

    id: int
    priority: int = 0
    retry_after: datetime | None = None
    attempt: int | None = 0
    processed_at: datetime | None = None
    lease: datetime | None = None
    error: str | None = None
    running: bool = False
    cleared: bool = False

    @property
    def order(self) -> tuple[Any, ...]:
        due = self.retry_after
        return (self.priority, EVER if due is None else due, self.id)


class Table:
    """The real table, emptied, and beside it the rows that it should hold. `others`: another program's connection."""

    def __init__(self, broker: Broker, form: Form, others: Others) -> None:
        self.broker, self.form, self.clock, self.others = broker, form, form.clock, others
        self.queue = broker.queue(form.spec)
        self.words = Words(broker.dialect, form.spec, False)
        self.rows: dict[int, Row] = {}
        self.has = form.spec.has
        self.clock.set(START)
        others.ask(f"DELETE FROM {form.spec.name}")

    @property
    def now(self) -> datetime:
        return self.clock.now()

    @property
    def parked(self) -> list[int]:
        return sorted(id for id, row in self.rows.items() if row.error is not None)

    # -- producers --------------------------------------------------------------------------------------------

    def enqueue(self, delay: int | None, priority: int) -> None:
        options: dict[str, Any] = {}
        if self.has(Role.PRIORITY):
            options["priority"] = priority
        if self.has(Role.RETRY_AFTER):
            options["delay"] = delay
        id = self.queue.enqueue(1, **options)
        assert id not in self.rows
        row = self.rows[id] = Row(id, priority=options.get("priority", 0))
        if options.get("delay") is not None:
            row.retry_after = self.now + timedelta(seconds=options["delay"])

    def enqueue_many(self, count: int) -> None:
        before = {id for (id,) in self.others.ask(f"SELECT id FROM {self.form.spec.name}")}
        assert self.queue.enqueue_many(range(count)) == count
        new = {id for (id,) in self.others.ask(f"SELECT id FROM {self.form.spec.name}")} - before
        assert len(new) == count
        self.rows |= {id: Row(id) for id in new}

    def insert(self) -> None:
        """A row in which another program left out what it could, its count too."""
        count = ", attempt" if self.has(Role.ATTEMPT) else ""
        null = ", NULL" if count else ""
        table = self.form.spec.name
        ((id,),) = self.others.ask(f"INSERT INTO {table} (payload{count}) VALUES ('1'{null}) RETURNING id")
        self.rows[id] = Row(id, attempt=None)

    def delete(self, id: int) -> None:
        self.others.ask(f"DELETE FROM {self.form.spec.name} WHERE id = ?", id)
        del self.rows[id]

    def clear_error(self, id: int) -> None:
        self.others.ask(f"UPDATE {self.form.spec.name} SET error = NULL WHERE id = ?", id)
        row = self.rows[id]
        row.error = None
        row.cleared = self.form.cap is not None and (row.attempt or 0) >= self.form.cap

    # -- what it holds ----------------------------------------------------------------------------------------

    def stored(self) -> dict[int, dict[str, Any]]:
        """What the database says, read as the library reads it."""
        columns = [column for column in self.form.spec.columns if column.role is not Role.PAYLOAD]
        names = ", ".join(column.name for column in columns)
        stored = {}
        for row in self.others.ask(f"SELECT {names} FROM {self.form.spec.name}"):
            values = {}
            for column, value in zip(columns, row, strict=True):
                decode = self.broker.dialect.decoder(column)
                values[column.name] = value if value is None or decode is None else decode(value)
            stored[values["id"]] = values
        return stored

    def expected(self) -> dict[int, dict[str, Any]]:
        fields = [column.field for column in self.form.spec.columns if column.role is not Role.PAYLOAD]
        return {id: {field: getattr(row, field) for field in fields} for id, row in self.rows.items()}

    def holds(self, claim: Claim) -> bool:
        """Whether the row still shows the claim's token."""
        row = self.rows.get(claim.id)
        return row is not None and row.processed_at is None and row.lease == claim.expires

    def claimable(self) -> list[Row]:
        now = self.now
        free = [
            row
            for row in self.rows.values()
            if row.processed_at is None
            and row.error is None
            and (row.retry_after is None or row.retry_after <= now)
            and (row.lease is None or row.lease <= now)
        ]
        return sorted(free, key=lambda row: row.order)


class Member:
    """A consumer without threads: its strategy, and the claims that it has not settled."""

    def __init__(self, table: Table, claims: Sequence[Claim] = ()) -> None:
        form = table.form
        payload = form.spec.role(Role.PAYLOAD)
        assert payload is not None
        self.table = table
        self.claims = list(claims)
        self._goes_round = False
        self.strategy = Lease(table.words, columns=(payload,), seconds=LEASE, most=3, cap=form.cap)

    def turn(self, settling: Sequence[tuple[Claim, Settlement]], limit: int) -> None:
        """Settle and claim, in the database and in the model; both must say the same.

        As a pump does, it extends first what it still holds and does not settle, where leases have ended meanwhile.
        """
        now = self.table.now
        settled = [claim for claim, _ in settling]
        if any(claim.expires and claim.expires <= now for claim in self.claims if claim not in settled):
            self.extend([claim for claim in self.claims if claim not in settled])
        with self.table.broker.pool.connection() as connection:
            turned = self.strategy.turn(connection, settling, limit, now)
        late = [claim for claim, settlement in settling if not self._settle(claim, settlement, now)]
        gone = [claim for claim in late if claim.id not in self.table.rows]
        assert list(turned.gone) == gone
        assert list(turned.lost) == [claim for claim in late if claim not in gone]
        changed = {claim.id for claim in settled if claim not in late}
        self._goes_round = self._goes_round or any(self._comes_back(settlement, now) for _, settlement in settling)
        rows = self._takes(changed, limit)
        if self._goes_round:
            rows = self._took(turned.claims, len(rows), limit)
        expected = [self._claim(row, now) for row in rows]
        assert [(claim.id, claim.attempt, claim.expires) for claim in turned.claims] == expected
        self.claims = [claim for claim in self.claims if claim not in settled] + list(turned.claims)

    def _takes(self, changed: set[int], limit: int) -> list[Row]:
        rows = self.table.claimable()
        if self.table.others.kind == "postgres":
            # One statement sees the table as it was before: what it lets go is for the next turn.
            rows = [row for row in rows if row.id not in changed]
        return rows[:limit]

    def _comes_back(self, settlement: Settlement, now: datetime) -> bool:
        """Whether a row asks to come again soon by its lease: those behind it are claimed first (PAINS 19)."""
        if self.table.has(Role.RETRY_AFTER) or settlement.move is not Move.RETRY:
            return False
        return settlement.due is None or settlement.due < now + SWEEP_AFTER

    def _took(self, claims: Sequence[Claim], least: int, most: int) -> list[Row]:
        """The rows of a claim that need not begin at the start: free ones, in order, and no fewer than there are."""
        free = {row.id: row for row in self.table.claimable()}
        rows = [free[claim.id] for claim in claims]
        assert least <= len(rows) <= most
        assert rows == sorted(rows, key=lambda row: row.order)
        return rows

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
            self._finish(row, now)
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

    def _finish(self, row: Row, now: datetime) -> None:
        if self.table.has(Role.PROCESSED_AT):
            row.processed_at = now
        else:
            del self.table.rows[row.id]

    def extend(self, claims: Sequence[Claim]) -> None:
        now = self.table.now
        lost = [claim for claim in claims if not self.table.holds(claim)]
        with self.table.broker.pool.connection() as connection:
            assert list(self.strategy.extend(connection, claims, now)) == lost
        for claim in claims:
            if claim not in lost:
                self.table.rows[claim.id].lease = now + timedelta(seconds=LEASE)
        self.claims = [claim for claim in self.claims if claim not in lost]
