"""What the model of the queue knows: the rows that a table should hold, and which of them a claim should find."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import attrs

from sqlqueue import Broker, Role
from sqlqueue.clock import UTC
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.strategies.claim import Claim
from sqlqueue.testing.clock import START
from tests.model.forms import ANOTHER, DEAD, UNREAD, Form, Others

#: Seconds.
LEASE = 30.0

#: "At once" is just past the turn that asks for it.
AT_ONCE = timedelta(microseconds=1)

EVER = datetime(1, 1, 1, tzinfo=UTC)


@attrs.define
class Row:
    """What a row should look like; `cleared`: somebody cleared its error, with its attempts spent. `held`: a delivery
    that holds its connection has it."""

    id: int
    group: str | None = None
    partition_key: str | None = None
    priority: int = 0
    retry_after: datetime | None = None
    attempt: int | None = 0
    processed_at: datetime | None = None
    lease: datetime | None = None
    error: str | None = None
    running: bool = False
    cleared: bool = False
    held: bool = False

    @property
    def unfinished(self) -> bool:
        return self.processed_at is None and self.error is None and self.group not in UNREAD

    @property
    def order(self) -> tuple[Any, ...]:
        due = self.retry_after
        return (self.priority, EVER if due is None else due, self.id)


class Table:
    """The real table, emptied, and beside it the rows that it should hold. `others`: another program's connection."""

    def __init__(self, broker: Broker, form: Form, others: Others) -> None:
        self.broker, self.form, self.clock, self.others = broker, form, form.clock, others
        self.sql = QueueSQL(broker.dialect, form.spec, grouped=form.group is not None)
        self.rows: dict[int, Row] = {}
        self.dead: dict[int, tuple[Any, ...]] = {}
        self.locked: dict[int, object] = {}  # the keys of rows in work, also of one that was deleted meanwhile
        self.has = form.spec.has
        self.clock.set(START)
        others.ask(f"DELETE FROM {form.spec.name}")
        if form.dead is not None:
            others.ask(f"DELETE FROM {form.dead.name}")
        if form.group is not None:
            self.insert("a", ANOTHER)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    @property
    def parked(self) -> list[int]:
        return sorted(id for id, row in self.rows.items() if row.error is not None)

    @property
    def deletable(self) -> list[int]:
        """Rows that another program may delete without waiting for a lock."""
        locks_rows = not self.has(Role.LEASE) and self.form.spec.advisory_lock is None
        return sorted(id for id, row in self.rows.items() if not (row.held and locks_rows))

    # -- producers --------------------------------------------------------------------------------------------

    def enqueue(self, delay: int | None, priority: int, key: str | None = None) -> None:
        options: dict[str, Any] = {}
        if self.has(Role.PRIORITY):
            options["priority"] = priority
        if self.has(Role.RETRY_AFTER):
            options["delay"] = delay
        if self.has(Role.PARTITION_KEY):
            options["key"] = key
        group = self._group(key)
        id = self.broker.queue(self.form.spec, group=group).enqueue(1, **options)
        assert id not in self.rows
        row = self.rows[id] = Row(id, group, options.get("key"), priority=options.get("priority", 0))
        if options.get("delay") is not None:
            row.retry_after = self.now + timedelta(seconds=options["delay"])

    def _group(self, key: str | None) -> str | None:
        return key if self.has(Role.GROUP) and self.form.group is None else self.form.group

    def enqueue_many(self, count: int) -> None:
        before = {id for (id,) in self.others.ask(f"SELECT id FROM {self.form.spec.name}")}
        group = self._group("a")
        assert self.broker.queue(self.form.spec, group=group).enqueue_many(range(count)) == count
        new = {id for (id,) in self.others.ask(f"SELECT id FROM {self.form.spec.name}")} - before
        assert len(new) == count
        self.rows |= {id: Row(id, group) for id in new}

    def insert(self, key: str | None, group: str | None = None) -> None:
        """A row in which another program left out what it could, its count too."""
        group = group or self._group(key)
        values: dict[str, str] = {"payload": "'1'"}
        if self.has(Role.ATTEMPT):
            values["attempt"] = "NULL"
        if group is not None:
            values['"group"'] = f"'{group}'"
        if self.has(Role.PARTITION_KEY) and key is not None:
            values["partition_key"] = f"'{key}'"
        table = self.form.spec.name
        ((id,),) = self.others.ask(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({', '.join(values.values())}) RETURNING id"
        )
        self.rows[id] = Row(id, group, key if self.has(Role.PARTITION_KEY) else None, attempt=None)

    def delete(self, id: int) -> None:
        self.others.ask(f"DELETE FROM {self.form.spec.name} WHERE id = ?", id)
        del self.rows[id]

    def clear_error(self, id: int) -> None:
        self.others.ask(f"UPDATE {self.form.spec.name} SET error = NULL WHERE id = ?", id)
        row = self.rows[id]
        row.error = None
        row.cleared = self.form.cap is not None and (row.attempt or 0) >= self.form.cap

    def requeue(self, ids: list[int]) -> None:
        assert self.broker.queue(self.form.spec, group=self.form.group).requeue(ids) == len(ids)
        for id in ids:
            row = self.rows[id]
            row.error, row.attempt, row.lease, row.cleared = None, 0, None, False

    # -- what it holds ----------------------------------------------------------------------------------------

    def stored(self) -> dict[int, dict[str, Any]]:
        """What the database says, read as the library reads it."""
        columns = [column for column in self.form.spec.columns if column.role is not Role.PAYLOAD]
        names = ", ".join(f'"{column.name}"' for column in columns)
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

    def stored_dead(self) -> dict[int, tuple[Any, ...]]:
        """When each is due again, its count, its lease and its key, by id."""
        if self.form.dead is None:
            return {}
        columns = {column.field: column for column in self.form.dead.columns}
        decode = self.broker.dialect.decoder(columns["again_at"])
        assert decode is not None
        rows = self.others.ask(f"SELECT id, again_at, tries, locked_until, partition_key FROM {self.form.dead.name}")
        return {id: (decode(due), *others) for id, due, *others in rows}

    def holds(self, claim: Claim) -> bool:
        """Whether the row still shows the claim's token."""
        row = self.rows.get(claim.id)
        return row is not None and row.processed_at is None and row.lease == claim.expires

    def claimable(self) -> list[Row]:
        """The rows that are free, in claim order; of a line its front, if that is."""
        free = [row for row in self.rows.values() if self._free(row)]
        if self.form.spec.fifo_column:
            fronts = self._fronts()
            free = [row for row in free if self.line(row) is None or fronts[self.line(row)] is row]
        if self.form.spec.advisory_lock is not None:
            free = [row for row in free if self.lock(row) not in self.locked.values()]
        return sorted(free, key=lambda row: row.order)

    def _free(self, row: Row) -> bool:
        now = self.now
        return (
            row.unfinished
            and not row.held
            and (row.retry_after is None or row.retry_after <= now)
            and (row.lease is None or row.lease <= now)
        )

    def line(self, row: Row) -> str | None:
        spec = self.form.spec.fifo_column
        return None if spec is None else getattr(row, spec.field)

    def _fronts(self) -> dict[str | None, Row]:
        """The first unfinished row of each line; the one in work where there is one."""
        ranked = self.has(Role.PRIORITY)

        def place(row: Row) -> tuple[Any, ...]:
            waits = (not row.attempt, row.priority) if ranked else ()
            return (not row.held, row.lease is None, *waits, row.id)

        fronts: dict[str | None, Row] = {}
        for row in sorted(self.rows.values(), key=place):
            if row.unfinished:
                fronts.setdefault(self.line(row), row)
        return fronts

    def lock(self, row: Row) -> object:
        """What stands for the key that is locked with the row."""
        assert self.form.spec.advisory_lock is not None
        return row.partition_key if "partition_key" in self.form.spec.advisory_lock.fields else row.id

    def finish(self, row: Row, now: datetime) -> None:
        if self.has(Role.PROCESSED_AT):
            row.processed_at = now
        else:
            del self.rows[row.id]

    def bury(self, row: Row, now: datetime) -> None:
        """It moves to its dead letter."""
        if self.form.dead is not None:
            del self.rows[row.id]
            self.dead[row.id] = (now, 0, None, row.partition_key)
            return
        row.group, row.retry_after, row.attempt = DEAD, None, 0
        row.lease, row.running, row.held, row.cleared = None, False, False, False

    @staticmethod
    def check_took(claims: Sequence[Claim], free: Sequence[Row], least: int, most: int) -> list[Row]:
        """The rows of a claim that need not begin at the start: free ones, in order, and no fewer than there are."""
        rows = [next(row for row in free if row.id == claim.id) for claim in claims]
        assert least <= len(rows) <= most
        assert rows == sorted(rows, key=lambda row: row.order)
        return rows
