"""What a claim reads of a row, and how the rows become claims in claim order."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlqueue.column import Role
from sqlqueue.dialect import Row
from sqlqueue.spec import ColumnSpec
from sqlqueue.strategies.base import Claim
from sqlqueue.strategies.order import in_order, positions, sort_key
from sqlqueue.words import Words

#: The roles that a claim reads for itself, whatever the handler asks for.
NEEDED = (Role.ID, Role.ATTEMPT, Role.PRIORITY, Role.RETRY_AFTER)


class Reading:
    """The columns that one queue's claims return: the handler's first, then what the strategy needs beside them."""

    def __init__(self, words: Words, columns: Sequence[ColumnSpec]) -> None:
        needed = [column for role in NEEDED if (column := words.spec.role(role)) is not None]
        needed += [words.spec.line] if words.spec.line else []
        self._words = words
        self.columns = (*columns, *(column for column in needed if column not in columns))
        self._width = len(columns)
        places = positions(self.columns, Role.ID, Role.ATTEMPT, Role.RETRY_AFTER)
        self.id_at, self._attempt_at = places[Role.ID], places.get(Role.ATTEMPT)
        self._due_at = places.get(Role.RETRY_AFTER)
        self._line_at = self.columns.index(words.spec.line) if words.spec.line else None
        self._key = sort_key(words, self.columns)

    @property
    def width(self) -> int:
        return len(self.columns)

    def select(self, attempt: str | None = None) -> str:
        """The columns as SELECT and RETURNING list them; `attempt` is an expression to read in that column's place."""
        read, qualified = self._words.dialect.read, self._words.qualified
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
