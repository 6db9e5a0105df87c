"""The claim order once more, in Python: a claim returns its rows in none.

The values that every statement of a queue may name: *now* as each column holds it, the group, the cap, who waits.

Attempts: what the claim of a row makes of its count.

What a claim reads of a row, and how the rows become claims in claim order.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

from sqlqueue.clock import readable
from sqlqueue.dialect import Converter, Row
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import MOMENTS, Role
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import fill
from sqlqueue.strategies.claim import NOBODY, Claim, PassOver


def positions(returned: Sequence[ColumnSpec], *roles: Role) -> dict[Role, int]:
    """Where the columns that play these roles stand in a row."""
    return {column.role: place for place, column in enumerate(returned) if column.role in roles}


def sort_key(sql: QueueSQL, returned: Sequence[ColumnSpec]) -> Callable[[Row], Any]:
    """What the claim's ORDER BY compares; a row that is due since ever goes first."""
    places = positions(returned, Role.ID, Role.PRIORITY, Role.RETRY_AFTER)
    id_at, priority_at, due_at = places[Role.ID], places.get(Role.PRIORITY), places.get(Role.RETRY_AFTER)
    if priority_at is None and due_at is None:
        return itemgetter(id_at)
    decode = sql.decoder(Role.RETRY_AFTER)

    def key(row: Row) -> tuple[Any, ...]:
        priority = None if priority_at is None else row[priority_at]
        due = None if due_at is None else readable(decode, row[due_at])
        return (0 if priority is None else priority, due is not None, due, row[id_at])

    return key


def in_order(rows: Sequence[Row], key: Callable[[Row], Any]) -> Sequence[Row]:
    """The rows sorted by `key`, whatever their columns hold: one odd row must not spoil a claim."""
    if len(rows) < 2:
        return rows
    try:
        return sorted(rows, key=key)
    except TypeError:  # SQLite keeps values of any type in any column
        return sorted(rows, key=lambda row: [of_any_type(value) for value in _values(key(row))])


def _values(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def of_any_type(value: Any) -> tuple[int, Any]:
    """As SQLite orders values: NULL, numbers, text, bytes."""
    if value is None:
        return 0, None
    for rank, kinds in enumerate(((int, float), str, bytes), 1):
        if isinstance(value, kinds):  # type: ignore[arg-type]
            return rank, value
    return 4, value


class Parameters:
    """What one queue's statements bind; beside the rest `constants`, and `moments` that are made of *now*."""

    def __init__(
        self,
        sql: QueueSQL,
        *,
        group: str | None,
        cap: int | None,
        constants: Mapping[str, Any] | None = None,
        moments: Mapping[str, Callable[[datetime], Any]] | None = None,
    ) -> None:
        self._constants: dict[str, Any] = {"group": group, "cap": cap, **(constants or {})}
        self._nows = [(f"now_{role.value}", sql.now_encoder(role)) for role in MOMENTS if sql.spec.has(role)]
        self._nows += (moments or {}).items()
        self._encode_list: Converter = sql.dialect.list_encoder() or list
        self._constants |= self._passed(NOBODY)

    def values(self, now: datetime, pass_over: PassOver = NOBODY) -> dict[str, Any]:
        values = dict(self._constants)
        for name, encode in self._nows:
            values[name] = encode(now)
        if pass_over is not NOBODY:
            values |= self._passed(pass_over)
        return values

    def _passed(self, pass_over: PassOver) -> dict[str, Any]:
        return {"passed_keys": self._encode_list(pass_over.keys), "passed_ids": self._encode_list(pass_over.ids)}


COUNT = "COALESCE({attempt}, 0) + 1"

# A row whose error somebody cleared has spent its attempts: it starts a fresh count. `{cleared}` tells it from a row
# whose last worker was lost, which has spent them as well.
COUNT_AFRESH = "CASE WHEN {cleared} THEN 1 ELSE COALESCE({attempt}, 0) + 1 END"

# Where no lease tells the two apart the count does: one beyond the cap is a row whose last worker was lost, however
# often it is claimed before it is parked.
COUNT_TO_SPENT = """
CASE WHEN {cleared} THEN 1 WHEN {attempt} > :cap THEN {attempt} ELSE COALESCE({attempt}, 0) + 1 END
"""


def count(sql: QueueSQL, *, capped: bool, cleared: str, to_spent: bool = False) -> str | None:
    """The expression for the attempts with this delivery counted, None where the table does not count.

    `cleared`: the strategy's condition, over `{attempt}`, `{lease}` and `:cap`, for a row that was parked and is put
    back to work. `to_spent`: the count ends at one beyond the cap.
    """
    if not sql.spec.has(Role.ATTEMPT):
        return None
    names = {"attempt": sql.column(Role.ATTEMPT)}
    if not capped or not sql.spec.has(Role.ERROR):
        return fill(COUNT, names)
    if sql.spec.has(Role.LEASE):
        names["lease"] = sql.column(Role.LEASE)
    return fill(COUNT_TO_SPENT if to_spent else COUNT_AFRESH, {**names, "cleared": fill(cleared, names)}).strip()


#: The roles that a claim reads for itself, whatever the handler asks for.
NEEDED = (Role.ID, Role.ATTEMPT, Role.PRIORITY, Role.RETRY_AFTER)


class Reading:
    """The columns that one queue's claims return: the handler's first, then what the strategy needs beside them."""

    def __init__(self, sql: QueueSQL, columns: Sequence[ColumnSpec]) -> None:
        needed = [column for role in NEEDED if (column := sql.spec.role(role)) is not None]
        needed += [sql.spec.line] if sql.spec.line else []
        self._sql = sql
        self.columns = (*columns, *(column for column in needed if column not in columns))
        self._width = len(columns)
        places = positions(self.columns, Role.ID, Role.ATTEMPT, Role.RETRY_AFTER)
        self.id_at, self._attempt_at = places[Role.ID], places.get(Role.ATTEMPT)
        self._due_at = places.get(Role.RETRY_AFTER)
        self._line_at = self.columns.index(sql.spec.line) if sql.spec.line else None
        self._key = sort_key(sql, self.columns)

    @property
    def width(self) -> int:
        return len(self.columns)

    def select(self, attempt: str | None = None) -> str:
        """The columns as SELECT and RETURNING list them; `attempt` is an expression to read in that column's place."""
        read, qualified = self._sql.dialect.read, self._sql.qualified
        return ", ".join(
            attempt if attempt is not None and column.role is Role.ATTEMPT else read(column, qualified(column))
            for column in self.columns
        )

    def in_order(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows in claim order: a claim returns them in none."""
        return in_order(rows, self._key)

    def position(self, row: Row) -> tuple[Any, Any]:
        """Where a row stands in the claim order of a queue without priorities."""
        return None if self._due_at is None else row[self._due_at], row[self.id_at]

    def line(self, row: Row) -> Any:
        """The row's FIFO line, as the driver returned it."""
        return None if self._line_at is None else row[self._line_at]

    def claims(self, rows: Sequence[Row], token: Any = None, expires: datetime | None = None) -> list[Claim]:
        """The rows as claims that are held by one token."""
        id_at, attempt_at, width = self.id_at, self._attempt_at, self._width
        return [
            Claim(row[id_at], token, expires, None if attempt_at is None else int(row[attempt_at]), row[:width])
            for row in rows
        ]
