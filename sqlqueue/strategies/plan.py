"""What is decided once, when a queue is opened: its plan, the columns that its claims read, and the values that its
statements bind."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any, Protocol

import attrs

from sqlqueue.clock import readable
from sqlqueue.dialect import Converter, Row
from sqlqueue.queue_sql import QueueSQL
from sqlqueue.roles import MOMENTS, Role
from sqlqueue.spec import ColumnSpec
from sqlqueue.sql import fill
from sqlqueue.statements import Settlements
from sqlqueue.strategies.claim import NOBODY, Claim, PassOver
from sqlqueue.strategies.dead_letter import DeadLetters


@attrs.frozen(kw_only=True)
class Shape:
    """What the statements of a queue of a kind of its own say, such as a queue of tasks.

    `settlements`: what settles its rows. `cap`: the attempts after which a claim counts afresh. `free`: further
    conditions for a row that nobody holds. `taking`: what its claim assigns beside the rest. `moments`: values of these
    that are made of *now*.
    """

    settlements: Settlements
    cap: int | None = None
    free: Sequence[str] = ()
    taking: Sequence[str] = ()
    moments: Mapping[str, Callable[[datetime], Any]] = attrs.field(factory=dict)


class ShapeMaker(Protocol):
    """What makes the rows of a queue a kind of its own."""

    def shape(self, sql: QueueSQL, assigned: Callable[[str], str]) -> Shape:
        """What its statements say. `assigned`: a given value as the payload's column takes it."""
        ...


@attrs.frozen(kw_only=True, eq=False)
class QueuePlan:
    """What every strategy of a queue is made of.

    `columns`: what the handler reads of a row. `cap`: the attempts after which a row is spent (None: no cap). `most`:
    the most rows of one claim; where others keep the locks, the most that this consumer holds. `by_key`: whether claims
    pass keys over. `lease`: how long one lasts, in seconds; `precision`: the decimal digits of a second that its column
    keeps (None: all). `dead_letters`: how rows become dead letters (None: they do not). `shape`: of tasks.
    """

    sql: QueueSQL
    columns: Sequence[ColumnSpec]
    group: str | None = None
    cap: int | None = None
    most: int = 1
    by_key: bool = False
    lease: float | None = None
    precision: int | None = None
    dead_letters: DeadLetters | None = None
    shape: Shape | None = None


class Parameters:
    """The values that every statement of a queue may name: *now* as each column holds it, the group, the cap, and what
    a claim passes over; beside them `constants`, and `moments` that are made of *now*."""

    def __init__(
        self,
        sql: QueueSQL,
        *,
        group: str | None,
        cap: int | None,
        constants: Mapping[str, Any] | None = None,
        moments: Mapping[str, Callable[[datetime], Any]] | None = None,
    ) -> None:
        self._encode_list: Converter = sql.dialect.list_encoder() or list
        self._constants: dict[str, Any] = {"group": group, "cap": cap, **(constants or {}), **self._passed(NOBODY)}
        columns = {f"now_{role.value}": sql.spec.role(role) for role in MOMENTS}
        encoders = {name: sql.dialect.now_encoder(column) for name, column in columns.items() if column is not None}
        self._as_they_are = [name for name, encode in encoders.items() if encode is None]
        self._encoded = [(name, encode) for name, encode in encoders.items() if encode is not None]
        self._encoded += (moments or {}).items()

    def values(self, now: datetime, pass_over: PassOver = NOBODY) -> dict[str, Any]:
        values = dict(self._constants)
        for name in self._as_they_are:
            values[name] = now
        for name, encode in self._encoded:
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


def count(plan: QueuePlan, *, cleared: str, to_spent: bool = False) -> str | None:
    """The expression for the attempts with this delivery counted, None where the table does not count.

    `cleared`: the strategy's condition, over `{attempt}`, `{lease}` and `:cap`, for a row that was parked and is put
    back to work. `to_spent`: the count ends at one beyond the cap.
    """
    sql = plan.sql
    if not sql.spec.has(Role.ATTEMPT):
        return None
    names = {"attempt": sql.column(Role.ATTEMPT)}
    if plan.cap is None or not sql.spec.has(Role.ERROR):
        return fill(COUNT, names)
    if sql.spec.has(Role.LEASE):
        names["lease"] = sql.column(Role.LEASE)
    return fill(COUNT_TO_SPENT if to_spent else COUNT_AFRESH, {**names, "cleared": fill(cleared, names)}).strip()


#: The roles that a claim reads for itself, whatever the handler asks for.
NEEDED = (Role.ID, Role.ATTEMPT, Role.PRIORITY, Role.RETRY_AFTER)


class Reading:
    """The columns that one queue's claims return: the handler's first, then what the strategy needs beside them.

    `id_at`, `due_at`, `key_at`: where the id, the due time and the FIFO key stand in a row, None where there is none.
    """

    def __init__(self, plan: QueuePlan) -> None:
        sql = self._sql = plan.sql
        needed = [column for role in NEEDED if (column := sql.spec.role(role)) is not None]
        needed += [sql.spec.fifo_column] if sql.spec.fifo_column else []
        self.columns = (*plan.columns, *(column for column in needed if column not in plan.columns))
        self.width, self._handed_on = len(self.columns), len(plan.columns)
        places = {column.role: place for place, column in enumerate(self.columns) if column.role in NEEDED}
        self.id_at, self._attempt_at = places[Role.ID], places.get(Role.ATTEMPT)
        self.due_at = places.get(Role.RETRY_AFTER)
        self.key_at = self.columns.index(sql.spec.fifo_column) if sql.spec.fifo_column else None
        self._sort_key = sort_key(sql, places)

    def select(self, attempt: str | None = None) -> str:
        """The columns as SELECT and RETURNING list them; `attempt` is an expression to read in that column's place."""
        read, qualified = self._sql.dialect.read, self._sql.qualified
        return ", ".join(
            attempt if attempt is not None and column.role is Role.ATTEMPT else read(column, qualified(column))
            for column in self.columns
        )

    def in_order(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The rows in claim order, in which a claim does not return them; one odd value must not spoil it."""
        try:
            return sorted(rows, key=self._sort_key)
        except TypeError:  # SQLite keeps values of any type in any column
            return sorted(rows, key=lambda row: of_any_type(self._sort_key(row)))

    def claims(self, rows: Sequence[Row], token: Any = None, expires: datetime | None = None) -> list[Claim]:
        """The rows as claims that are held by one token."""
        id_at, attempt_at, width = self.id_at, self._attempt_at, self._handed_on
        claims = []
        for row in rows:
            attempt = None if attempt_at is None else int(row[attempt_at])
            claims.append(Claim(row[id_at], token, expires, attempt, row[:width]))
        return claims


def sort_key(sql: QueueSQL, places: Mapping[Role, int]) -> Callable[[Row], Any]:
    """What the claim's ORDER BY compares; a row that is due since ever goes first."""
    id_at, priority_at, due_at = places[Role.ID], places.get(Role.PRIORITY), places.get(Role.RETRY_AFTER)
    if priority_at is None and due_at is None:
        return itemgetter(id_at)
    decode = sql.decoder(Role.RETRY_AFTER)

    def key(row: Row) -> tuple[Any, ...]:
        priority = None if priority_at is None else row[priority_at]
        due = None if due_at is None else readable(decode, row[due_at])
        return (0 if priority is None else priority, due is not None, due, row[id_at])

    return key


def of_any_type(value: Any) -> Any:
    """As SQLite orders values: NULL, numbers, text, bytes; a key of several values by each of them."""
    if isinstance(value, tuple):
        return [of_any_type(one) for one in value]
    if value is None:
        return 0, None
    for rank, kinds in enumerate(((int, float), str, bytes), 1):
        if isinstance(value, kinds):  # type: ignore[arg-type]
            return rank, value
    return 4, value
