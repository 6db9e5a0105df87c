"""The border to a database: what a dialect package answers, and nothing else about it is known to the core."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from sqlqueue.capabilities import Capabilities, ColumnFacts, Trouble
from sqlqueue.connection import Connection, Hint, Pool, PoolSettings, Row, Waker
from sqlqueue.spec import ColumnSpec, TableSpec
from sqlqueue.sql import Statement, fill

__all__ = [
    "Capabilities",
    "ColumnFacts",
    "Connection",
    "Converter",
    "Dialect",
    "Hint",
    "Pool",
    "PoolSettings",
    "Row",
    "Trouble",
    "Waker",
]

#: Turns one value into another, such as a datetime into the text that a column holds.
Converter = Callable[[Any], Any]


# Where a transaction that writes keeps all others out, two statements find the same row.
COPY_ROW = """
INSERT INTO {destination} ({columns})
SELECT {values} FROM {table}
WHERE {id} = {given_id} {fence}
"""

DELETE_ROW = """
DELETE FROM {table}
WHERE {id} = {given_id} {fence}
RETURNING {id}
"""

EACH_PRIORITY = """
SELECT _found.id AS id FROM _levels
CROSS JOIN LATERAL (
    {rows}
) AS _found
"""


class Dialect(ABC):
    """A database as the core asks it. One object serves one broker: it knows the URL, or the user's pool."""

    #: The name that logs and errors use; the core never compares it.
    name: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    # -- the source -------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def source(self) -> str:
        """Where the database is, without password or other secrets, for people to read."""

    # -- writing ----------------------------------------------------------------------------------------------

    def quote(self, identifier: str) -> str:
        """`identifier` as a quoted identifier."""
        return '"' + identifier.replace('"', '""') + '"'

    @abstractmethod
    def placeholder(self, number: int) -> str:
        """The text that stands for the n-th value, counted from 1; one number may stand in several places."""

    def table(self, spec: TableSpec) -> str:
        """The table's quoted name, with its schema where there is one."""
        return f"{self.quote(spec.schema)}.{self.quote(spec.name)}" if spec.schema else self.quote(spec.name)

    # -- fragments --------------------------------------------------------------------------------------------

    @abstractmethod
    def now(self, column: ColumnSpec) -> str:
        """The database's own *now*, as `column` holds moments."""

    @abstractmethod
    def later(self, column: ColumnSpec, seconds: str) -> str:
        """The database's own *now* plus so many seconds, as `column` holds moments; NULL where the seconds are NULL.

        `seconds` is an expression, such as a value's `:name`, of a number from 0 to `clock.LONGEST_DELAY`. The moment
        is rounded up to what `now` tells apart, so that by this clock it never comes earlier; 0 seconds are *now*, up
        to the column's own precision.
        """

    #: What follows a SELECT to lock its rows and pass over those locked; empty where there are no row locks.
    skip_locked: ClassVar[str] = ""

    def given(self, columns: Mapping[str, ColumnSpec]) -> str:
        """A table expression named `_given` of the call's rows: for each name a column with the values of the
        parameter of that name, typed as the table's column is. Empty where the dialect runs such a call once
        for each row: the statement then names the values themselves.
        """
        return ""

    @abstractmethod
    def any_of(self, column: ColumnSpec, expression: str, name: str) -> str:
        """The condition that `expression`, over `column`, is one of the values of the parameter `name`: a list of
        values as the driver returned them, bound through `list_encoder()`."""

    #: Statements that move a given row, while its `{fence}` holds, into the table `{destination}`, whose `{columns}`
    #: take `{values}`; the last one returns the `{id}` of the row that it moved. Or, where the database can, one for
    #: all rows `{using_given}`, which keeps `{kept}` of those that it deletes and inserts `{kept_values}`.
    moves: ClassVar[tuple[str, ...]] = (COPY_ROW, DELETE_ROW)

    def list_encoder(self) -> Converter | None:
        """From a list of values as the driver returned them to what is bound for it; None where that is the list."""
        return None

    def earliest(self, column: ColumnSpec) -> str:
        """A literal before every moment of `column`: what NULL counts as."""
        raise NotImplementedError

    @abstractmethod
    def due(self, moment: str, column: ColumnSpec, now: str) -> tuple[str, ...]:
        """Conditions that say that `moment` (an expression over `column`) is not after `now`.

        Each can be served by one range of an index on `moment`; no row meets two of them, every due row one.
        """

    @abstractmethod
    def ahead(self, moment: str, column: ColumnSpec, now: str) -> tuple[tuple[str, str], ...]:
        """Pairs of (value, condition): rows whose `moment` is after `now`, each pair one range of an index,
        and the moment of such a row in the one spelling that `decoder(column)` reads and `min` orders."""

    @abstractmethod
    def ended(self, moment: str, column: ColumnSpec, now: str) -> str:
        """One condition, exact whoever wrote the value: `moment` is not NULL and not after `now`."""

    def each_priority(self, spec: TableSpec, rows: str, order: Sequence[str]) -> str:
        """A SELECT of the column `id`: what `rows`, a SELECT of the table's ids that names columns of `_levels`, finds
        for each priority, a row of `_levels`, in turn. Its rows come in `order`, whose first key is the priority, and
        where the database can for no more priorities than a LIMIT behind it asks for."""
        return fill(EACH_PRIORITY, {"rows": rows})

    def text_of(self, column: ColumnSpec, expression: str) -> str:
        """The value of `column` as text, the same for the same value: a part of a lock's key."""
        return fill("CAST({expression} AS text)", {"expression": expression})

    # Session locks, where there are any: locks on a number, which stands for a key's text.

    #: A SELECT of the numbers that are locked in this database, by any session.
    locked_numbers: ClassVar[str] = ""

    #: A table expression, without columns of interest, that lets its statement's own commit not wait for the disk.
    relaxed: ClassVar[str] = ""

    def number_of(self, key: str) -> str:
        """The number that stands for the text `key`."""
        raise NotImplementedError

    def try_lock(self, number: str) -> str:
        """The condition that the session takes the lock now, without waiting."""
        raise NotImplementedError

    def unlock(self, number: str) -> str:
        """The condition that the session held the lock and let it go."""
        raise NotImplementedError

    # FIFO keys and groups. Where claims run at the same time, a key is guarded while its head is claimed.

    @abstractmethod
    def walk_heads(self, parts: Mapping[str, str], guard: str) -> str:
        """`parts["select"]` behind a WITH of `_lines`, the heads of a table's FIFO keys.

        The walk begins behind the key `{from_line}` and goes once around. Its columns: `line` (the key), `id` (its
        head), `taken`, and `seen`, which counts the keys from 1. `taken`: whether the head is free and, where there is
        a `guard`, a condition over `_next.line`, was guarded. The walk ends at the `{limit}`th taken, or the `{most}`th
        seen. The other parts are the table's: `{table}`, `{id}`, `{line}` (its FIFO column), `{keys}` (the order that
        begins with that column), `{unfinished}` (conditions, each with an AND behind it), `{free}`."""

    @abstractmethod
    def keep_heads(self, column: ColumnSpec) -> str:
        """A SELECT behind a walk that keeps the taken keys for `kept_heads`, where they are guarded. It returns one row
        of: anything, the last key seen as the driver reads `column`, how many were seen, how many were taken, whether
        the walk read from the start."""

    def kept_heads(self, spec: TableSpec, column: ColumnSpec) -> str:
        """A table expression `_kept` of the column `line`: the keys that this transaction kept in a walk before."""
        raise NotImplementedError

    def guard(self, key: str) -> str:
        """The condition that the transaction takes, without waiting, a lock on the text `key` until it ends."""
        raise NotImplementedError

    def read(self, column: ColumnSpec, expression: str) -> str:
        """The expression that reads a column so that `decoder(column)` can take its value."""
        return expression

    def assigned(self, column: ColumnSpec, fact: ColumnFacts, expression: str) -> str:
        """`expression`, a given value of `column`, as the database's own column takes it in a SET."""
        return expression

    # -- values -----------------------------------------------------------------------------------------------

    @abstractmethod
    def encoder(self, column: ColumnSpec) -> Converter | None:
        """From a Python value (never None) to what the driver binds; None where it is bound as it is."""

    def now_encoder(self, column: ColumnSpec) -> Converter | None:
        """As `encoder`, for the host's *now* that `due`, `ahead` and `ended` compare with: where the column is coarse,
        moments are rounded up when written and *now* is rounded down, so that no row is due before its moment."""
        return self.encoder(column)

    def spellings(self, column: ColumnSpec, value: Any) -> Sequence[Any]:
        """What may stand for `value` in the column, whoever wrote it, ours first, as the driver takes it."""
        encode = self.encoder(column)
        return (value if encode is None else encode(value),)

    @abstractmethod
    def decoder(self, column: ColumnSpec) -> Converter | None:
        """From what the driver returns (never None) to the declared type, moments as aware UTC datetimes;
        None where it comes as it is. Raises ValueError or TypeError on a value that cannot be read."""

    # -- connections ------------------------------------------------------------------------------------------

    @abstractmethod
    def open_pool(self, settings: PoolSettings) -> Pool:
        """The broker's pool in this process: of its own, or around the user's. Does not connect."""

    @abstractmethod
    def adopt(self, connection: Any) -> Connection | None:
        """A caller's driver connection as a `Connection` that joins its transaction; None if it is not ours."""

    @abstractmethod
    def waker(self, pool: Pool, channels: Sequence[str], wake: Callable[[Hint], None], *, notify: bool) -> Waker | None:
        """A waker for other programs' writes, not started yet; None where there is none."""

    def notification(self, channel: str, payload: str) -> tuple[str, Mapping[str, Any]] | None:
        """Template and values of the statement that wakes listeners at commit; None where nothing is sent."""
        return None

    def check_channel(self, channel: str, group: str | None) -> None:
        """Raise `DeclarationError` where a notification could not carry these names."""

    # -- the schema -------------------------------------------------------------------------------------------

    @abstractmethod
    def create_table(self, spec: TableSpec) -> tuple[str, ...]:
        """The recommended CREATE TABLE IF NOT EXISTS and CREATE INDEX IF NOT EXISTS statements."""

    @abstractmethod
    def add_column(self, spec: TableSpec, column: ColumnSpec) -> str:
        """The ALTER TABLE that adds a column of the recommended table."""

    def create_notify(self, spec: TableSpec) -> tuple[str, ...]:
        """The statements that make every insert wake listeners, one notification a statement; may be none."""
        return ()

    @abstractmethod
    def create_index(self, spec: TableSpec, keys: Sequence[str], where: str) -> str:
        """CREATE INDEX IF NOT EXISTS for these key expressions and this partial condition ("" for all rows)."""

    @abstractmethod
    def check_server(self, connection: Connection) -> None:
        """Raise `Unsupported` where the server is too old, naming what it is and what is needed."""

    def check_sessions(self, pool: Pool) -> None:
        """Raise `Unsupported` where a connection does not keep its session: locks that live as long as a connection
        would be left with whoever a pooler hands it on to. Bounded in time; needs no more than one free connection."""

    @abstractmethod
    def describe(self, connection: Connection, spec: TableSpec) -> Mapping[str, ColumnFacts] | None:
        """The table's columns by name, as the database has them; None where there is no such table."""

    @abstractmethod
    def misfit(self, column: ColumnSpec, facts: ColumnFacts) -> str | None:
        """Why the database's column cannot hold the declared one and how to mend it; None where it can."""

    @abstractmethod
    def check_statement(self, connection: Connection, statement: Statement) -> None:
        """Have the server prepare the statement, privileges included; the driver's error where it refuses."""

    @abstractmethod
    def check_writable(self, connection: Connection) -> None:
        """Raise the driver's error, or `SchemaError`, where this connection can only read."""

    @abstractmethod
    def lacks_index(self, connection: Connection, statement: Statement, spec: TableSpec) -> bool:
        """Whether the statement, a claim, must sort or read the whole table for want of an index."""

    @abstractmethod
    def read_clock(self, connection: Connection) -> datetime:
        """The database's own clock, aware UTC."""

    # -- judgement --------------------------------------------------------------------------------------------

    @abstractmethod
    def classify(self, error: BaseException) -> Trouble:
        """What the driver's error means for a loop that could try again."""
